"""Scores a model's translations: BLEU, chrF and TER by sacreBLEU.

    python -m tfnmt.evaluate --model=RUN_OR_EXPORT --split=val
    python -m tfnmt.evaluate --model=RUN_OR_EXPORT --test=my.en,my.de
    python -m tfnmt.evaluate --model=RUN_OR_EXPORT --split=val --against=ANOTHER --report=F.md

Prints scores with 95% intervals and signatures; a run keeps them in evaluations.jsonl.
--against has another model translate the same text, and tells by a paired bootstrap whether the
difference may be chance. --report writes a page of what is wrong, and where.
--metric=multi30k adds the literature's BLEU for Multi30k: lower-cased, tokenised.
"""

import json
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from absl import flags

from tfnmt.cli import define_data_dir, define_search, run, search_changes
from tfnmt.data.corpora.assembly import Origin
from tfnmt.data.corpora.catalog import data_folder, download_missing, open_corpus, split_name
from tfnmt.data.corpora.corpus import Files
from tfnmt.data.corpora.formats import find_texts
from tfnmt.data.corpora.text_files import Pair, read_lines
from tfnmt.errors import UsageError, UserError
from tfnmt.loading.models import ExportModel, RunModel, find_model
from tfnmt.progress import NotedLines, bar, say
from tfnmt.runtime.files import check_writable, write_atomically
from tfnmt.runtime.startup import share_processors

if TYPE_CHECKING:
    from tfnmt.decoding.lines import Answer

FLAGS = flags.FlagValues()
flags.DEFINE_string("model", None, "a run or an export", flag_values=FLAGS)
flags.DEFINE_string("split", None, "a split of the run's corpus", flag_values=FLAGS)
flags.DEFINE_list("test", None, "text instead: my.en,my.de, or a .tsv ...", flag_values=FLAGS)
flags.DEFINE_string(
    "against", None, "another run or export, searching as it is set to", flag_values=FLAGS
)
flags.DEFINE_string(
    "report", None, "a Markdown file for what is wrong, and where", flag_values=FLAGS
)
flags.DEFINE_string("json", None, "a file for the evaluation as JSON", flag_values=FLAGS)
flags.DEFINE_enum("metric", None, ["multi30k"], "a further metric", flag_values=FLAGS)
define_search(FLAGS)
define_data_dir(FLAGS)


class TestSet(NamedTuple):
    """What is translated and scored."""

    name: str
    pairs: list[Pair]
    last_file: Path
    """Where text is in a file for each language: the references'."""

    @property
    def sources(self) -> list[str]:
        """What is translated."""
        return [source for source, _ in self.pairs]

    @property
    def references(self) -> list[str]:
        """What translations are compared with."""
        return [reference for _, reference in self.pairs]


def main(values: Any, positional: list[str]) -> None:
    """Translates the sources, scores, prints and keeps the result."""
    if positional:
        raise UsageError(f"{positional[0]}: not expected; see --help")
    if not values.model or bool(values.split) == bool(values.test):
        raise UsageError("give --model, and either --split or --test; see --help")
    model = find_model(values.model, search_changes(values))
    other = _find_other(values.against, model) if values.against else None
    text = _read(values, model)
    for name in filter(None, (values.json, values.report)):
        check_writable(Path(name))
    if values.metric == "multi30k":
        _official_tokens(text, model.config.data.target)  # what is wrong there is told now
    share_processors()
    answers = _translate(values, model, text.sources)
    hypotheses = _texts(answers)

    evaluation = _evaluate(values, model, text, answers)
    _print_scores(evaluation)
    other_answers = _translate(values, other, text.sources) if other else []
    if other:
        theirs = _texts(other_answers)
        evaluation["against"] = _compare(other, hypotheses, theirs, text.references)
        _print_differences(evaluation["against"])
    page = _diagnose(evaluation, text.pairs, answers, other_answers) if values.report else None
    _keep(values, model, evaluation, page)


def _find_other(name: str, model: RunModel | ExportModel) -> RunModel | ExportModel:
    """The model to compare with, which must translate between the same languages."""
    other = find_model(name, {})
    ours, theirs = ((each.source, each.target) for each in (model.config.data, other.config.data))
    if ours != theirs:
        raise UsageError(
            f"--against={name}: translates {' to '.join(theirs)}, and --model {' to '.join(ours)}; "
            "compare models of one direction"
        )
    return other


def _read(values: Any, model: RunModel | ExportModel) -> TestSet:
    """What is scored, in the model's direction."""
    data = model.config.data
    if values.split:
        if data.corpus is None and not model.knows_its_text:
            raise UsageError(
                f"--split={values.split}: an export or a bundle does not tell where its text lay; "
                "give --test=SOURCE,TARGET"
            )
        data_dir = data_folder(values.data_dir)
        corpus = open_corpus(data, model.config.training.seed, data_dir)
        split = split_name(data, corpus, values.split)
        download_missing(data, corpus, (split,), data_dir, Origin())
        return TestSet(split, list(corpus.pairs(split)), corpus.files(split)[-1])
    texts = find_texts([Path(name) for name in values.test], data.source, data.target)
    corpus = Files({"test": texts})
    files = corpus.files("test")
    return TestSet(",".join(map(str, files)), list(corpus.pairs("test")), files[-1])


def _translate(
    values: Any, model: RunModel | ExportModel, sources: Sequence[str]
) -> list["Answer"]:
    """The answers; with what looks wrong in them where there is to be a report."""
    graphs = model.load()
    from tfnmt.decoding.lines import again, best, translate_lines, windows

    answering = best(graphs["serving_default"])
    if values.report:
        answering = again(answering, graphs["align"])
    translated = translate_lines(answering, windows(sources))
    answers = list(bar(translated, "translating", "sentences", len(sources)))
    longest = model.config.decoding.max_source_length
    cut = NotedLines(
        f"longer than {longest} pieces (decoding.max_source_length), cut there by {model.name}",
        "what was cut off is missing in the scores",
    )
    with closing(cut):
        for number, answer in enumerate(answers, start=1):
            if answer.truncated:
                cut.note(number)
    return answers


def _evaluate(
    values: Any, model: RunModel | ExportModel, text: TestSet, answers: Sequence["Answer"]
) -> dict[str, Any]:
    """The scores, and what they are of."""
    from tfnmt.evaluation.metrics import scores

    data, hypotheses = model.config.data, _texts(answers)
    evaluation: dict[str, Any] = dict(scores(hypotheses, text.references))
    if values.metric == "multi30k":
        evaluation["bleu_lc_tok"] = _literature(text, hypotheses, data.target)
    return {
        **evaluation,
        "model": model.name,
        "source": data.source,
        "target": data.target,
        "split": text.name,
        "sentences": len(text.pairs),
        "truncated": sum(answer.truncated for answer in answers),
        **_settings(model),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _keep(
    values: Any, model: RunModel | ExportModel, evaluation: dict[str, Any], page: str | None
) -> None:
    """Writes the files that were asked for, then the run's own line."""
    if values.json:
        write_atomically(Path(values.json), (json.dumps(evaluation, indent=1) + "\n").encode())
    if page is not None:
        write_atomically(Path(values.report), page.encode(errors="backslashreplace"))
    if isinstance(model, RunModel):
        model.run.append_evaluation(evaluation)


def _texts(answers: Sequence["Answer"]) -> list[str]:
    return [answer.best.text for answer in answers]


def _settings(model: RunModel | ExportModel) -> dict[str, Any]:
    """What decides a model's translations: its search, and the update that it is from."""
    return {**model.config.decoding.model_dump(), "step": model.step}


def _compare(
    other: RunModel | ExportModel,
    hypotheses: Sequence[str],
    others: Sequence[str],
    references: Sequence[str],
) -> dict[str, Any]:
    """The other's scores, and ours less those."""
    from tfnmt.evaluation.comparison import compare
    from tfnmt.evaluation.metrics import scores

    return {
        **scores(others, references),
        "model": other.name,
        **_settings(other),
        "differences": compare(hypotheses, others, references),
    }


def _diagnose(
    evaluation: dict[str, Any],
    pairs: Sequence[Pair],
    answers: Sequence["Answer"],
    other_answers: Sequence["Answer"],
) -> str:
    """Adds what is found to the evaluation; the report's page."""
    from tfnmt.evaluation.diagnosis import diagnose, findings
    from tfnmt.evaluation.report import report

    lines, others = diagnose(pairs, answers), []
    evaluation |= findings(lines)
    if "against" in evaluation:
        others = diagnose(pairs, other_answers)
        evaluation["against"] |= findings(others)
    return report(evaluation, lines, others)


def _official_tokens(text: TestSet, target: str) -> list[str] | None:
    """The references' official tokens, where they lie beside them."""
    path = _official_path(text, target)
    if not path.is_file():
        return None
    lines = list(read_lines(path))
    if len(lines) != len(text.pairs):
        raise UserError(f"{path}: {len(lines):,} lines for {len(text.pairs):,} references; mend it")
    return lines


def _official_path(text: TestSet, target: str) -> Path:
    return text.last_file.with_suffix(f".lc.norm.tok.{target}")


def _literature(text: TestSet, hypotheses: Sequence[str], target: str) -> dict[str, Any]:
    """The literature's BLEU, against the official tokens if there are any."""
    from tfnmt.evaluation.metrics import bleu, literature_bleu, literature_tokens

    path = _official_path(text, target)
    tokens, official = literature_tokens(text.references, target), _official_tokens(text, target)
    if official is None:
        say(f"no self-test: there are no official tokens in {path}; ours are the references")
        return literature_bleu(hypotheses, tokens, target)
    differing = sum(ours != theirs for ours, theirs in zip(tokens, official, strict=True))
    lower = bleu([line.lower() for line in text.references], text.references)
    say(
        f"self-test: {differing} of {len(tokens):,} references tokenised otherwise than in "
        f"{path.name}; lower-cased references scored cased give {lower:.2f}"
    )
    return literature_bleu(hypotheses, official, target)


def _print_scores(evaluation: dict[str, Any]) -> None:
    from tfnmt.evaluation.metrics import LABELS

    for name in filter(LABELS.__contains__, evaluation):
        score = evaluation[name]
        print(
            f"{LABELS[name]} {score['score']:.2f}  [{score['low']:.2f}, {score['high']:.2f}]  "
            f"{score['signature']}"
        )


def _print_differences(against: dict[str, Any]) -> None:
    from tfnmt.evaluation.metrics import LABELS

    print(f"against {against['model']}, the difference, and p by a paired bootstrap:")
    for name, found in against["differences"].items():
        print(
            f"{LABELS[name]} {against[name]['score']:.2f}  {found['difference']:+.2f} "
            f"[{found['low']:+.2f}, {found['high']:+.2f}]  p={found['p_value']:.3f}"
        )


if __name__ == "__main__":
    run(main, FLAGS, __doc__)
