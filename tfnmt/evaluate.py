"""Scores a model's translations: BLEU, chrF and TER by sacreBLEU.

    python -m tfnmt.evaluate --model=RUN_OR_EXPORT --split=val
    python -m tfnmt.evaluate --model=RUN_OR_EXPORT --test=my.en,my.de

Prints scores with 95% intervals and signatures; a run keeps them in evaluations.jsonl.
--metric=multi30k adds the literature's BLEU for Multi30k: lower-cased, tokenised.
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from absl import flags

from tfnmt.config import DataConfig
from tfnmt.data.catalog import download_missing, open_corpus, split_name
from tfnmt.data.corpora import Files
from tfnmt.data.files import Pair, read_lines
from tfnmt.data.formats import find_texts
from tfnmt.data.published import Origin
from tfnmt.errors import UsageError, UserError
from tfnmt.exporting.models import ExportModel, RunModel, find_model
from tfnmt.flags import define_data_dir, define_search, run, search_changes
from tfnmt.lanes import share_processors
from tfnmt.progress import bar, say
from tfnmt.run import home, write_atomically

FLAGS = flags.FlagValues()
flags.DEFINE_string("model", None, "a run or an export", flag_values=FLAGS)
flags.DEFINE_string("split", None, "a split of the run's corpus", flag_values=FLAGS)
flags.DEFINE_list("test", None, "text instead: my.en,my.de, or a .tsv ...", flag_values=FLAGS)
flags.DEFINE_string("json", None, "a file for the evaluation as JSON", flag_values=FLAGS)
flags.DEFINE_enum("metric", None, ["multi30k"], "a further metric", flag_values=FLAGS)
define_search(FLAGS)
define_data_dir(FLAGS)

LABELS = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER", "bleu_lc_tok": "BLEU, the literature's"}


def main(values: Any, positional: list[str]) -> None:
    """Translates the sources, scores, prints and keeps the result."""
    if positional:
        raise UsageError(f"{positional[0]}: not expected; see --help")
    if not values.model or bool(values.split) == bool(values.test):
        raise UsageError("--model, and --split or --test: needed; see --help")
    model = find_model(values.model, search_changes(values))
    split, pairs = _read(values, model)
    sources, references = zip(*pairs, strict=True)
    share_processors()
    hypotheses = _translate(model, sources)

    from tfnmt.evaluation.scores import scores

    data = model.config.data
    result: dict[str, Any] = dict(scores(hypotheses, references))
    if values.metric == "multi30k":
        result["bleu_lc_tok"] = _literature(data, split, hypotheses, references, _data_dir(values))
    decoding = model.config.decoding
    evaluation = {
        **result,
        "model": model.name,
        "source": data.source,
        "target": data.target,
        "split": split,
        "sentences": len(pairs),
        "beam_size": decoding.beam_size,
        "length_penalty": decoding.length_penalty,
        "step": model.step,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    _report(result)
    if values.json:
        write_atomically(Path(values.json), (json.dumps(evaluation, indent=1) + "\n").encode())
    if isinstance(model, RunModel):
        model.run.append_evaluation(evaluation)


def _read(values: Any, model: RunModel | ExportModel) -> tuple[str, list[Pair]]:
    """The name of what is scored, and its pairs in the model's direction."""
    data = model.config.data
    if values.split:
        data_dir = _data_dir(values)
        corpus = open_corpus(data, model.config.training.seed, data_dir)
        split = split_name(data, corpus, values.split)
        download_missing(data, corpus, (split,), data_dir, Origin())
        return split, list(corpus.pairs(split))
    texts = find_texts([Path(name) for name in values.test], data.source, data.target)
    corpus = Files({"test": texts})
    return ",".join(map(str, corpus.files("test"))), list(corpus.pairs("test"))


def _translate(model: RunModel | ExportModel, sources: Sequence[str]) -> list[str]:
    graphs = model.load()
    from tfnmt.decoding.answers import best
    from tfnmt.decoding.lines import translate_lines, windows

    answering = best(graphs["serving_default"])
    answers = translate_lines(answering, windows(sources))
    return [each.best.text for each in bar(answers, "translating", "sentences", len(sources))]


def _literature(
    data: DataConfig,
    split: str,
    hypotheses: Sequence[str],
    references: Sequence[str],
    data_dir: Path,
) -> dict[str, Any]:
    """The literature's BLEU, against the official tokens where the data folder has them."""
    from tfnmt.evaluation.literature import literature_bleu, literature_tokens
    from tfnmt.evaluation.scores import bleu

    tokens = literature_tokens(references, data.target)
    official = data_dir / "multi30k" / f"{split}.lc.norm.tok.{data.target}"
    if not official.is_file():
        say(f"no self-test: there are no official tokens in {official}; ours are the references")
        return literature_bleu(hypotheses, tokens, data.target)
    lines = list(read_lines(official))
    if len(lines) != len(tokens):
        raise UserError(f"{official}: {len(lines):,} lines for {len(tokens):,} references; mend it")
    differing = sum(ours != theirs for ours, theirs in zip(tokens, lines, strict=True))
    lower = bleu([line.lower() for line in references], references)
    say(
        f"self-test: {differing} of {len(lines):,} references tokenised otherwise than in "
        f"{official.name}; lower-cased references scored cased give {lower:.2f}"
    )
    return literature_bleu(hypotheses, lines, data.target)


def _report(result: dict[str, Any]) -> None:
    for name, score in result.items():
        print(
            f"{LABELS[name]} {score['score']:.2f}  [{score['low']:.2f}, {score['high']:.2f}]  "
            f"{score['signature']}"
        )


def _data_dir(values: Any) -> Path:
    return Path(values.data_dir or home() / "data")


if __name__ == "__main__":
    run(main, FLAGS, __doc__)
