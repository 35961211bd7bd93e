"""Parity: an export says what its run says, or it is not published."""

import json
import pickle
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfnmt.config import Config
from tfnmt.data.corpora.catalog import open_corpus, split_name
from tfnmt.data.preparation.tokenizer import UNK, Tokenizer
from tfnmt.decoding.lines import batches
from tfnmt.errors import UserError

Ask = Callable[..., str]
"""`ask(complaint, *arguments)`: what the process prints of its arguments, once. Where it fails, a
UserError has the complaint and the last line of what it says.
"""


@contextmanager
def fresh_process(script: str, python: str = sys.executable) -> Iterator[Ask]:
    """Starts a script, which makes its imports and then reads its arguments from standard input."""
    with subprocess.Popen(
        [python, "-P", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:

        def ask(complaint: str, *arguments: object) -> str:
            output, errors = process.communicate(json.dumps([*map(str, arguments)]))
            if process.returncode:
                last = (errors.strip() or "no message").splitlines()[-1]
                raise UserError(f"{complaint}: {last}")
            return output

        try:
            yield ask
        finally:
            process.kill()


COUNT = 200
HARD = (
    "", " ", "two  spaces ", "a\u00a0b\u200cc", "line\nbreak\ttab", "\u202eabc", "😀🏽‍🚀",
    "\ufffd", "\x00", "سلام دنیا", "日本語の文です。", "A dog runs. " * 80,
)  # fmt: skip
"""What no corpus has, or seldom."""


def parity_texts(config: Config, tokenizer: Tokenizer, data_dir: Path) -> list[str]:
    """The first validation sentences, where they are at hand, else drawn ones; and hard ones."""
    try:
        corpus = open_corpus(config.data, config.training.seed, data_dir)
        split = split_name(config.data, corpus, "val")
        texts = [source for source, _ in islice(corpus.pairs(split), COUNT)]
    except UserError:
        texts = _drawn(tokenizer)
    return [*texts, *HARD]


def _drawn(tokenizer: Tokenizer) -> list[str]:
    """Pieces in a row, short and long."""
    generator = random.Random(1)
    ids = range(UNK + 1, tokenizer.vocab_size)
    return tokenizer.decode(
        [generator.choices(ids, k=generator.randint(1, 50)) for _ in range(COUNT)]
    )


Arrays = dict[str, np.ndarray]
Call = tuple[str, Arrays]

TOLERANCE = 1e-4
"""How far two numbers may lie apart; strings and ids must be the same."""

CHARACTERS = 4096
"""Rows x the longest text of a call: few texts wait for the longest."""

SHOWN_ROWS = 10
"""Rows of a call for `attention`, whose answer is large."""

TEXT_OPERATIONS = {
    "SentencepieceOp", "SentencepieceTokenizeOp", "SentencepieceDetokenizeOp",
}  # fmt: skip
"""Of those that only tensorflow_text brings, what an export needs: every TensorFlow Serving has
them.
"""

UNSERVED = {"PyFunc", "PyFuncStateless", "EagerPyFunc", "XlaLaunch", "XlaLaunchV2"}
"""Operations that TensorFlow Serving cannot run."""


def calls_of(graphs: Mapping[str, Any], texts: Sequence[str]) -> list[Call]:
    """Every graph with inputs that it asks for: texts, their translations, ids."""
    return [call for batch in _batches(texts) for call in _calls(graphs, _strings(batch))]


def certify(
    graphs: Mapping[str, Any], calls: Sequence[Call], folder: Path, ask: Ask
) -> dict[str, Any]:
    """Compares what graphs answer to some calls with what the SavedModel in a folder answers.

    The folder is looked at from `fresh.py` in a process of its own, which may be that of another
    Python. Returns the certificate; raises a UserError with the first difference.
    """
    with ThreadPoolExecutor() as pool:  # both answer at the same time
        asked = pool.submit(_report, folder, calls, ask)
        expected = [_arrays(graphs[name](**_tensors(inputs))) for name, inputs in calls]
        report = asked.result()
    problems = [f"{what}; a server cannot run it" for what in _unserved(report)]
    if problems:
        raise UserError(*problems)
    differences = dict.fromkeys(graphs, 0.0)
    for (name, inputs), ours, theirs in zip(calls, expected, report["outputs"], strict=True):
        apart = _compare(name, inputs, ours, theirs)
        differences[name] = max(differences[name], apart)
    return {
        "calls": len(calls),
        "largest_difference": differences,
        "operations": report["operations"],
    }


def _calls(graphs: Mapping[str, Any], text: np.ndarray) -> Iterator[Call]:
    translation = graphs["greedy"](text=tf.constant(text))["translation"].numpy()
    tokens = graphs["tokenize"](text=tf.constant(text))["tokens"].numpy()
    inputs = {"text": text, "translation": translation, "tokens": tokens}
    for name, graph in graphs.items():
        asked = [spec.name for spec in graph.input_signature]
        shown = slice(SHOWN_ROWS if name == "attention" else None)
        yield name, {key: inputs[key][shown] for key in asked}


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    """Hard texts, whose translations seldom end before they must, keep none of the others."""
    others = [text for text in texts if text not in HARD]
    for rows in batches([len(text) for text in others], CHARACTERS):
        yield [others[row] for row in rows]
    if hard := [text for text in texts if text in HARD]:
        yield hard


def _report(folder: Path, calls: Sequence[Call], ask: Ask) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        asked, answered = Path(scratch) / "calls", Path(scratch) / "answers"
        asked.write_bytes(pickle.dumps(calls))
        ask(f"{folder}: cannot be loaded in a fresh process", folder, asked, answered)
        report: dict[str, Any] = pickle.loads(answered.read_bytes())
    return report


def _unserved(report: dict[str, Any]) -> list[str]:
    """What of a report would keep a server from running the graph."""
    unknown = set(report["text_operations"]) - TEXT_OPERATIONS
    forbidden = UNSERVED & set(report["operations"])
    return [
        *(f"operation {name}" for name in sorted(unknown | forbidden)),
        *report["bound"],
        *(f"the fresh process has imported {name}" for name in report["ours"]),
    ]


def _compare(name: str, inputs: Arrays, ours: Arrays, theirs: Arrays) -> float:
    """The largest difference of numbers; raises at the first that counts."""
    largest = 0.0
    for key, expected in ours.items():
        found = theirs[key]
        if expected.shape != found.shape:
            raise UserError(f"{name}.{key}: shape {found.shape}, but the run's {expected.shape}")
        if np.issubdtype(expected.dtype, np.floating):
            apart = np.abs(expected - found)
            largest = max(largest, float(apart.max(initial=0.0)))
            wrong = ~(apart <= TOLERANCE)  # so that what is no number is wrong too
        else:
            wrong = expected != found
        if wrong.any():
            row = int(np.argwhere(wrong)[0][0])
            shown = {side: _shown(values[row]) for side, values in inputs.items()}
            raise UserError(
                f"{name}.{key}: the run says {_shown(expected[row])}, the export "
                f"{_shown(found[row])}, of {shown}; nothing was published"
            )
    return largest


def _shown(value: Any) -> str:
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return json.dumps(text[:200], ensure_ascii=False)


def _strings(texts: Sequence[str]) -> np.ndarray:
    return np.array([text.encode(errors="replace") for text in texts], dtype=object)


def _tensors(arrays: Arrays) -> dict[str, Any]:
    return {key: tf.constant(value) for key, value in arrays.items()}


def _arrays(tensors: Mapping[str, Any]) -> Arrays:
    return {key: value.numpy() for key, value in tensors.items()}
