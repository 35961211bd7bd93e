"""Score the translations of a model: BLEU, chrF and TER by sacreBLEU.

    python -m tfnmt.evaluate --model=RUN_OR_EXPORT --split=val
    python -m tfnmt.evaluate --model=RUN_OR_EXPORT --test=my.en,my.de
    python -m tfnmt.evaluate --model=RUN_OR_EXPORT --split=val --against=ANOTHER --report=F.md
    python -m tfnmt.evaluate --model=RUN_OR_EXPORT --split=val [--direction=en-fr]

Prints the scores with their 95% confidence intervals and signatures. The scores of a run are also
appended to its evaluations.jsonl. --against translates the same text with another model and tests
with a paired bootstrap whether the difference is due to chance. --report writes a page with the
likely errors and the lines that have them. --metric=multi30k adds the BLEU of the Multi30k papers,
which is lowercased and tokenized. A model of several directions is scored in each of them, unless
--direction names one.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from itertools import repeat
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from absl import flags

from tfnmt.cli import (
    decoding_changes,
    define_decoding,
    define_direction,
    define_downloads,
    define_engine,
    run_command,
)
from tfnmt.data.corpora.assembly import Origin
from tfnmt.data.corpora.catalog import data_folder, download_missing, open_corpus, split_name
from tfnmt.data.corpora.corpus import Corpus, Files, HeldOut, log_empty_pairs
from tfnmt.data.corpora.directions import by_direction
from tfnmt.data.corpora.discovery import find_texts
from tfnmt.data.corpora.text_files import Pair
from tfnmt.errors import UsageError, UserError
from tfnmt.evaluation.comparison import compare
from tfnmt.evaluation.diagnosis import diagnose, summarize
from tfnmt.evaluation.metrics import METRICS, OPTIONS, score_with_interval, scores, select_metrics
from tfnmt.evaluation.multi30k import official_tokens
from tfnmt.evaluation.report import report
from tfnmt.experiment import reused_tokenizer
from tfnmt.exporting.converted import select_engine
from tfnmt.loading.directions import bound_language, find_direction
from tfnmt.loading.models import ExportModel, RunModel, find_model
from tfnmt.progress import LineNotes, progress_bar
from tfnmt.runtime.files import check_outputs, write_atomically
from tfnmt.runtime.startup import configure_threads

if TYPE_CHECKING:
    from tfnmt.decoding.lines import Translation

Model = RunModel | ExportModel

FLAGS = flags.FlagValues()
flags.DEFINE_string("model", None, "a run or an export", flag_values=FLAGS)
flags.DEFINE_string("split", None, "a split of the run's corpus", flag_values=FLAGS)
flags.DEFINE_list(
    "test", None, "files instead of a split: my.en,my.de, or a .tsv ...", flag_values=FLAGS
)
flags.DEFINE_string(
    "against",
    None,
    "another run or export to compare with; it decodes with its own settings",
    flag_values=FLAGS,
)
flags.DEFINE_string(
    "report", None, "a Markdown file for likely errors and example lines", flag_values=FLAGS
)
flags.DEFINE_string("json", None, "a file for the evaluation as JSON", flag_values=FLAGS)
flags.DEFINE_enum("metric", None, OPTIONS, "an additional metric", flag_values=FLAGS)
define_decoding(FLAGS)
define_direction(FLAGS)
define_engine(FLAGS)
define_downloads(FLAGS)


class TestSet(NamedTuple):
    """The text of an evaluation."""

    name: str
    pairs: list[Pair]
    files: tuple[Path, ...]
    languages: tuple[str, str]  # source and target

    @property
    def direction(self) -> str:
        """The languages as in `en-de`."""
        return "-".join(self.languages)

    @property
    def target(self) -> str:
        """The language of the references."""
        return self.languages[1]

    @property
    def reference_file(self) -> Path | None:
        """The only file with references, which may have both languages; otherwise None."""
        return self.files[-1] if len(self.files) in (1, 2) else None

    @property
    def sources(self) -> list[str]:
        """The sentences to translate."""
        return [source for source, _ in self.pairs]

    @property
    def references(self) -> list[str]:
        """The reference translations."""
        return [reference for _, reference in self.pairs]


def main(values: Any, positional: list[str]) -> None:
    """Translate the sources; score the translations; print and store the results."""
    if positional:
        raise UsageError(f"{positional[0]}: unexpected argument; see --help")
    if not values.model or bool(values.split) == bool(values.test):
        raise UsageError("--model and one of --split and --test: required; see --help")
    if values.test:
        given = [name for name in ("data_dir", "mirror", "checksums") if values[name].present]
        if given:
            raise UsageError(*(f"--{name}: only for --split; omit it" for name in given))
    model = find_model(values.model, decoding_changes(values))
    directions = _find_directions(values, model)
    model = select_engine(model, values.engine, values.quantization)
    other = _find_other(values.against, model, directions) if values.against else None
    texts = [_read(values, model, languages) for languages in directions]
    for text in texts:
        log_empty_pairs(text.name, text.pairs)
    _check_outputs(values, model, other, texts)
    references = [_prepare_references(values.metric, text) for text in texts]
    configure_threads()
    ours = _translate(values, model, texts)
    theirs = _translate(values, other, texts) if other else repeat([])

    evaluations, pages = [], []
    for text, prepared, translations, others in zip(texts, references, ours, theirs, strict=False):
        evaluation = _evaluate(model, text, prepared, translations)
        _print_scores(evaluation, text.direction if len(texts) > 1 else "")
        if other:
            compared = _compare(other, _texts(translations), _texts(others), text.references)
            evaluation["against"] = compared
            _print_differences(compared)
        if values.report:
            pages.append(_diagnose(evaluation, text.pairs, translations, others))
        evaluations.append(evaluation)
    if len(texts) > 1:
        _print_means(evaluations)
    _store(values, model, evaluations, pages)


def _find_directions(values: Any, model: Model) -> list[tuple[str, str]]:
    """Return the (source, target) of each direction to evaluate: all of them for a split."""
    if values.split and values.direction is None:
        return [find_direction(model, each) for each in model.config.data.all_directions]
    return [find_direction(model, values.direction)]


def _check_outputs(
    values: Any, model: Model, other: Model | None, texts: Sequence[TestSet]
) -> None:
    """Check that no output replaces a file that the command reads."""
    official = [official_tokens(text.reference_file, text.target) for text in texts]
    inputs = {
        "--split" if values.split else "--test": [path for text in texts for path in text.files],
        "--metric": [path for path in official if path],
        "--model": model.files,
        "--against": other.files if other else [],
    }
    outputs = {"--json": values.json or None, "--report": values.report or None}
    check_outputs(outputs, inputs)


def _find_other(name: str, model: Model, directions: Sequence[tuple[str, str]]) -> Model:
    """Find the model to compare with. It must translate between the same languages."""
    other = find_model(name, {})
    theirs, ours = other.config.data.all_directions, ["-".join(each) for each in directions]
    if not set(ours) <= set(theirs):
        raise UsageError(
            f"--against={name}: translates {_spelled(*theirs)}, and --model {_spelled(*ours)}; "
            "compare models of the same direction"
        )
    return other


def _spelled(*directions: str) -> str:
    return ", ".join(direction.replace("-", " to ") for direction in directions)


def _read(values: Any, model: Model, languages: tuple[str, str]) -> TestSet:
    """Read the test set of a direction."""
    if values.split:
        return _read_split(values, model, languages)
    corpus = Files({"test": find_texts(values.test, *languages)})
    files = corpus.files("test")
    return TestSet(",".join(map(str, files)), list(corpus.pairs("test")), files, languages)


def _read_split(values: Any, model: Model, languages: tuple[str, str]) -> TestSet:
    """Read a split of the model's corpus."""
    data, direction = model.config.data, "-".join(languages)
    if data.corpus is None and not model.has_data_paths:
        raise UsageError(
            f"--split={values.split}: an export or a bundle does not contain the paths of its "
            "data files; use --test=SOURCE,TARGET"
        )
    data_dir = data_folder(values.data_dir)
    corpora = open_corpus(data, model.config.training.seed, data_dir)
    corpus = by_direction(data, corpora).get(direction)
    if corpus is None:
        raise UsageError(
            f"--split={values.split}: the corpus of {model.name} has no {direction}, only "
            f"{', '.join(data.all_directions)}; use --test=SOURCE,TARGET"
        )
    split = split_name(data, corpus, values.split)
    origin = Origin(values.mirror, values.checksums)
    download_missing(data.of_direction(direction), corpus, (split,), data_dir, origin)
    if isinstance(corpus, HeldOut):
        _check_held_out(values.split, model, corpora)
    return TestSet(split, list(corpus.pairs(split)), corpus.files(split), languages)


def _check_held_out(split: str, model: Model, corpus: Corpus) -> None:
    """Refuse a split of changed training data: rows held out of it may have been trained on."""
    if not isinstance(model, RunModel):
        return
    from tfnmt.data.preparation.prepared import prepared_name

    tokenizer = reused_tokenizer(model.config, model.run)
    if not model.run.was_trained_on(prepared_name(model.config, corpus, tokenizer)):
        raise UserError(
            f"--split={split}: {corpus.files('train')[0]} or another file of data.train has "
            f"changed since {model.name} was trained, so other rows would be held out; restore "
            "the files, or use --test"
        )


def _prepare_references(option: str | None, text: TestSet) -> dict[str, Sequence[str]]:
    """Preprocess the references for each metric, by its key."""
    return {
        metric.key: metric.prepare_references(text.references, text.target, text.reference_file)
        for metric in select_metrics(option)
    }


def _translate(
    values: Any, model: Model, texts: Iterable[TestSet]
) -> Iterator[list["Translation"]]:
    """Translate the sources. For a report, the translations have quality warnings."""
    loaded = model.load()
    from tfnmt.decoding.lines import (
        best_translations,
        read_windows,
        translate_lines,
        with_log_probs,
    )
    from tfnmt.decoding.signatures import with_target

    for text in texts:
        graphs = with_target(loaded, bound_language(model, text.target))
        translator = best_translations(graphs["serving_default"])
        if values.report:
            translator = with_log_probs(translator, graphs)
        results = translate_lines(translator, read_windows(text.sources))
        translations = list(progress_bar(results, "translating", "sentences", len(text.pairs)))
        _note_truncated(model, translations)
        yield translations


def _note_truncated(model: Model, translations: Sequence["Translation"]) -> None:
    limit = model.config.decoding.max_source_length
    notes = LineNotes(
        f"longer than {limit} tokens (decoding.max_source_length), truncated by {model.name}",
        "the scores include these lines, whose rest is not translated",
    )
    with closing(notes):
        for number, translation in enumerate(translations, start=1):
            if translation.truncated:
                notes.add(number)


def _evaluate(
    model: Model,
    text: TestSet,
    references: Mapping[str, Sequence[str]],
    translations: Sequence["Translation"],
) -> dict[str, Any]:
    """Return the scores, and the settings that they depend on."""
    source, target = text.languages
    hypotheses = _texts(translations)
    evaluation: dict[str, Any] = {}
    for key, lines in references.items():
        metric = METRICS[key]
        prepared = metric.prepare_hypotheses(hypotheses, target)
        evaluation[key] = score_with_interval(metric.create(), prepared, lines)
    return {
        **evaluation,
        "model": model.name,
        "source": source,
        "target": target,
        "split": text.name,
        "sentences": len(text.pairs),
        "truncated": sum(translation.truncated for translation in translations),
        **_settings(model),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _settings(model: Model) -> dict[str, Any]:
    """Return the settings that determine the translations: the decoding and the weights."""
    return {**model.config.decoding.model_dump(), "step": model.step, **model.origin}


def _texts(translations: Sequence["Translation"]) -> list[str]:
    return [translation.best.text for translation in translations]


def _compare(
    other: Model,
    hypotheses: Sequence[str],
    others: Sequence[str],
    references: Sequence[str],
) -> dict[str, Any]:
    """Return the scores of the other model, and the differences to it."""
    return {
        **scores(others, references),
        "model": other.name,
        **_settings(other),
        "differences": compare(hypotheses, others, references),
    }


def _diagnose(
    evaluation: dict[str, Any],
    pairs: Sequence[Pair],
    translations: Sequence["Translation"],
    other_translations: Sequence["Translation"],
) -> str:
    """Add the likely errors to the evaluation; return the report."""
    lines, others = diagnose(pairs, translations), []
    evaluation |= summarize(lines)
    if "against" in evaluation:
        others = diagnose(pairs, other_translations)
        evaluation["against"] |= summarize(others)
    return report(evaluation, lines, others)


def _print_scores(evaluation: dict[str, Any], direction: str) -> None:
    if direction:
        print(f"{direction}:")
    for key, metric in METRICS.items():
        if key in evaluation:
            score = evaluation[key]
            print(
                f"{metric.label} {score['score']:.2f}  [{score['low']:.2f}, {score['high']:.2f}]  "
                f"{score['signature']}"
            )


def _print_means(evaluations: Sequence[dict[str, Any]]) -> None:
    """Print the mean of each score over all directions."""
    print(f"mean of {len(evaluations)} directions:")
    for key, metric in METRICS.items():
        scores = [each[key]["score"] for each in evaluations if key in each]
        if len(scores) == len(evaluations):
            print(f"{metric.label} {fmean(scores):.2f}")


def _print_differences(against: dict[str, Any]) -> None:
    print(f"against {against['model']}, difference and p-value of a paired bootstrap test:")
    for key, found in against["differences"].items():
        print(
            f"{METRICS[key].label} {against[key]['score']:.2f}  {found['difference']:+.2f} "
            f"[{found['low']:+.2f}, {found['high']:+.2f}]  p={found['p_value']:.3f}"
        )


def _store(
    values: Any, model: Model, evaluations: Sequence[dict[str, Any]], pages: Sequence[str]
) -> None:
    """Write the requested files, then append the evaluations to those of the run.

    The JSON file has one object, or a list of several directions.
    """
    if values.json:
        content = evaluations[0] if len(evaluations) == 1 else evaluations
        write_atomically(Path(values.json), (json.dumps(content, indent=1) + "\n").encode())
    if pages:
        page = "\n".join(pages).encode(errors="backslashreplace")
        write_atomically(Path(values.report), page)
    if isinstance(model, RunModel):
        for evaluation in evaluations:
            model.run.append_evaluation(evaluation)


if __name__ == "__main__":
    run_command(main, FLAGS, __doc__)
