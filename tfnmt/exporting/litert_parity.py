"""Parity check of a LiteRT export: a process without TensorFlow must reproduce the run's output."""

import pickle
import tempfile
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import sacrebleu
import tensorflow as tf

from tfnmt.config import Config
from tfnmt.data.corpora.catalog import open_corpus, split_name
from tfnmt.data.corpora.text_files import Pair
from tfnmt.decoding.lines import best_translations, read_windows, to_strings, translate_lines
from tfnmt.decoding.signatures import TARGET, with_target
from tfnmt.errors import UserError
from tfnmt.exporting import answer_litert
from tfnmt.exporting.parity import TOLERANCE, Call, clean_process, language_rows, make_calls
from tfnmt.litert.interpreters import Arrays
from tfnmt.litert.model import AXES

BLEU_SENTENCES = 1000
"""Validation sentences whose BLEU the report states."""

SIGNATURES = ("serving_default", "greedy", "nbest", "align", "attention")


def validation_pairs(config: Config, data_dir: Path) -> list[Pair]:
    """Return the first validation pairs; none if the validation set is not on this machine."""
    try:
        corpus = open_corpus(config.data, config.training.seed, data_dir)
        split = split_name(config.data, corpus, "val")
        return list(islice(corpus.pairs(split), BLEU_SENTENCES))
    except UserError:
        return []


def check_litert(
    graphs: Mapping[str, Any],
    texts: Sequence[str],
    pairs: Sequence[Pair],
    folder: Path,
    card: Mapping[str, Any],
) -> dict[str, Any]:
    """Compare the outputs of a run with those of its LiteRT export.

    Args:
        graphs: The graphs of the run by signature name.
        texts: The texts of the parity check.
        pairs: Validation pairs, for BLEU.
        folder: The export.
        card: Its model card. A float32 export must reproduce every string, except near ties:
            hypotheses whose scores differ by rounding only.

    Returns:
        The parity report.

    Raises:
        UserError: The export cannot run, or it differs and is float32.
    """
    targets = card.get("targets", ())
    calls = [call for call in make_calls(graphs, texts, targets) if call[0] in SIGNATURES]
    sources = {"text": to_strings([source for source, _ in pairs])}
    if targets:
        sources[TARGET] = language_rows([card["target"]], len(pairs))
    answer = _answers(folder, [*calls, ("serving_default", sources)])
    identical = translations = 0
    for (name, inputs), found in zip(calls, answer["outputs"], strict=False):
        tensors = graphs[name](**{key: tf.constant(value) for key, value in inputs.items()})
        expected = {key: value.numpy() for key, value in tensors.items()}
        if card["quantization"] == "float32":
            _check_equal(name, expected, found)
        if name == "serving_default":
            translations += len(expected["translation"])
            identical += int((expected["translation"] == found["translation"]).sum())
    report = {
        "calls": len(calls),
        "translations": translations,
        "identical": identical,
        "imported_packages": answer["modules"],
    }
    if pairs:
        graphs = with_target(graphs, card["target"] if targets else None)
        report |= _bleu(graphs, pairs, answer["outputs"][-1]["translation"])
    return report


def _check_equal(name: str, expected: Arrays, found: Arrays) -> None:
    """Raise a UserError unless all outputs are equal, floats up to TOLERANCE.

    Above 1 it is relative, because float32 sums of log probabilities round in proportion: sums of
    -171 (76 tokens, no length penalty) differed by 3e-5, which is two units in the last place.

    Texts may differ if their scores do not: both are then equally good.
    """
    for key in expected:
        if key in ("translation", "translations"):
            continue
        ours, theirs = (_real(key, values[key], expected) for values in (expected, found))
        compare = _close if ours.dtype.kind == "f" else np.equal
        if ours.shape != theirs.shape or not np.all(compare(ours, theirs)):  # a NaN is not equal
            raise UserError(
                f"{name}.{key}: the run and the export return different values; "
                "nothing was published"
            )


def _close(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    limits: np.ndarray = TOLERANCE * np.maximum(np.abs(ours), 1)
    return np.abs(ours - theirs) <= limits


def _real(key: str, values: np.ndarray, expected: Arrays) -> np.ndarray:
    """Return the entries of an output that belong to tokens, flat, without the padding."""
    if key not in AXES:
        return values
    axes = [expected[f"{side}_length"] for side in AXES[key]]
    rows = zip(values, *axes, strict=True)
    return np.concatenate([row[(..., *map(slice, lengths))].ravel() for row, *lengths in rows])


def _bleu(graphs: Mapping[str, Any], pairs: Sequence[Pair], found: np.ndarray) -> dict[str, Any]:
    """Return BLEU of the run and of the export on validation pairs."""
    sources, references = zip(*pairs, strict=True)
    translator = best_translations(graphs["serving_default"])
    translations = [each.best.text for each in translate_lines(translator, read_windows(sources))]
    exported = [text.decode() for text in found]
    return {
        "sentences": len(pairs),
        "bleu_of_run": round(sacrebleu.corpus_bleu(translations, [references]).score, 2),
        "bleu_of_export": round(sacrebleu.corpus_bleu(exported, [references]).score, 2),
    }


def _answers(folder: Path, calls: Sequence[Call]) -> dict[str, Any]:
    with (
        tempfile.TemporaryDirectory() as scratch,
        clean_process(answer_litert.__file__) as run_script,
    ):
        calls_path, answers_path = Path(scratch) / "calls", Path(scratch) / "answers"
        calls_path.write_bytes(pickle.dumps(calls))
        run_script(f"{folder}: cannot run without TensorFlow", folder, calls_path, answers_path)
        answer: dict[str, Any] = pickle.loads(answers_path.read_bytes())
    return answer
