"""Parity check: an export is published only if it reproduces the output of its run.

The signatures of both get the same calls. The export is called in a clean process, which has
TensorFlow and its text operations but nothing of tfnmt, like TensorFlow Serving.
"""

import json
import pickle
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfnmt.config import Config
from tfnmt.data.corpora.catalog import open_corpus, split_name
from tfnmt.data.preparation.tokenizer import UNK, Tokenizer
from tfnmt.decoding.lines import length_batches, to_strings
from tfnmt.decoding.signatures import SOURCE_SIGNATURES, TARGET, signature_specs
from tfnmt.errors import UserError

Arrays = dict[str, np.ndarray]
Call = tuple[str, Arrays]
"""A signature and its inputs."""

RunScript = Callable[..., str]
"""`run_script(problem, *arguments)` sends the arguments to a clean process and returns its output.

It can be called once. If the process fails, it raises a UserError with the problem and the last
line of stderr.
"""

TEXT_COUNT = 200
HARD_TEXTS = (
    "",
    " ",
    "two  spaces ",
    "a\u00a0b\u200cc",
    "line\nbreak\ttab",
    "\u202eabc",
    "😀🏽‍🚀",
    "\ufffd",
    "\x00",
    "سلام دنیا",
    "日本語の文です。",
    "A dog runs. " * 80,
)
"""Texts that are rare in corpora, or do not occur in them."""

TOLERANCE = 1e-4
"""The largest accepted difference of floats. Strings and integers must be equal."""

MAX_CHARACTERS = 4096
"""Limit for the rows of a call times the length of its longest text. Texts of similar length share
a call, because all of them are decoded until the longest one is finished.
"""

ATTENTION_ROWS = 10
"""Limit for the rows of a call to `attention`, whose output is large."""

TEXT_OPERATIONS = {
    "SentencepieceOp",
    "SentencepieceTokenizeOp",
    "SentencepieceDetokenizeOp",
}
"""The operations of tensorflow_text that an export may use. Every TensorFlow Serving has them."""

UNSUPPORTED_OPERATIONS = {"PyFunc", "PyFuncStateless", "EagerPyFunc", "XlaLaunch", "XlaLaunchV2"}
"""Operations of TensorFlow that TensorFlow Serving cannot run."""


# --- Calls ----------------------------------------------------------------------------------------


def parity_texts(config: Config, tokenizer: Tokenizer, data_dir: Path) -> list[str]:
    """Return the texts of the parity check.

    Returns:
        The first TEXT_COUNT sentences of the validation set, or texts of random tokens if the
        validation set is not on this machine; then HARD_TEXTS.
    """
    try:
        corpus = open_corpus(config.data, config.training.seed, data_dir)
        split = split_name(config.data, corpus, "val")
        texts = [source for source, _ in islice(corpus.pairs(split), TEXT_COUNT)]
    except UserError:
        texts = _random_texts(tokenizer)
    return [*texts, *HARD_TEXTS]


def _random_texts(tokenizer: Tokenizer) -> list[str]:
    """Return texts of 1 to 50 random tokens, the same in every call."""
    generator = random.Random(1)
    ids = range(UNK + 1, tokenizer.vocab_size)
    return tokenizer.decode(
        [generator.choices(ids, k=generator.randint(1, 50)) for _ in range(TEXT_COUNT)]
    )


def make_calls(
    graphs: Mapping[str, Any], texts: Sequence[str], targets: Sequence[str] = ()
) -> list[Call]:
    """Return calls of every graph that together cover all texts.

    Args:
        graphs: The graphs of the run by signature name.
        texts: The texts to translate. Translations and token ids are computed from them.
        targets: The languages with a language token. The texts take them in turn.
    """
    batches = map(to_strings, _batches(texts))
    return [call for batch in batches for call in _batch_calls(graphs, batch, targets)]


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield batches of similar length, and the hard texts in a batch of their own.

    The translations of hard texts often reach the length limit, which would slow down other texts.
    """
    others = [text for text in texts if text not in HARD_TEXTS]
    for rows in length_batches([len(text) for text in others], MAX_CHARACTERS):
        yield [others[row] for row in rows]
    if hard := [text for text in texts if text in HARD_TEXTS]:
        yield hard


def _batch_calls(
    graphs: Mapping[str, Any], text: np.ndarray, targets: Sequence[str]
) -> Iterator[Call]:
    languages = {TARGET: language_rows(targets, len(text))} if targets else {}
    translation = _arrays(graphs["greedy"](**_tensors({"text": text} | languages)))["translation"]
    tokens, target = (
        _arrays(graphs["tokenize"](**_tensors({"text": side} | languages)))["tokens"]
        for side in (text, translation)
    )
    inputs = {"text": text, "translation": translation, "tokens": tokens, "target": target}
    for name, spec in signature_specs(targets).items():
        given = inputs | languages if name in SOURCE_SIGNATURES else inputs
        rows = slice(ATTENTION_ROWS if name == "attention" else None)
        if name in graphs:
            yield name, {key: given[key][rows] for key in spec.inputs}


def language_rows(targets: Sequence[str], count: int) -> np.ndarray:
    """Return a language for each of some texts [B], all of them in turn."""
    return to_strings([*islice(cycle(targets), count)])


# --- Comparison -----------------------------------------------------------------------------------


def check_parity(
    graphs: Mapping[str, Any], calls: Sequence[Call], folder: Path, run_script: RunScript
) -> dict[str, Any]:
    """Compare the outputs of graphs with those of a SavedModel.

    Args:
        graphs: The graphs of the run by signature name.
        calls: The calls of `make_calls`.
        folder: The SavedModel.
        run_script: A clean process of `answer_calls.py`, possibly with another Python.

    Returns:
        The parity report: the number of calls, the largest difference of floats by signature, and
        the operations of the SavedModel.

    Raises:
        UserError: TensorFlow Serving cannot run the SavedModel, or an output differs. The message
            names the first difference.
    """
    pool = ThreadPoolExecutor(1)
    try:  # both compute at the same time
        answers = pool.submit(_run_calls, folder, calls, run_script)
        expected = [_arrays(graphs[name](**_tensors(inputs))) for name, inputs in calls]
        answer = answers.result()
    finally:  # after an error, do not wait for the process, which the caller kills
        pool.shutdown(wait=False)
    problems = [f"{problem}; TensorFlow Serving cannot run it" for problem in _unsupported(answer)]
    if problems:
        raise UserError(*problems)
    differences = dict.fromkeys(graphs, 0.0)
    for (name, inputs), ours, theirs in zip(calls, expected, answer["outputs"], strict=True):
        differences[name] = max(differences[name], _compare(name, inputs, ours, theirs))
    return {
        "calls": len(calls),
        "largest_difference": differences,
        "operations": answer["operations"],
    }


def _run_calls(folder: Path, calls: Sequence[Call], run_script: RunScript) -> dict[str, Any]:
    """Return what `answer_calls.py` writes about a SavedModel."""
    with tempfile.TemporaryDirectory() as scratch:
        calls_path, answers_path = Path(scratch) / "calls", Path(scratch) / "answers"
        calls_path.write_bytes(pickle.dumps(calls))
        problem = f"{folder}: cannot be loaded in a clean process"
        run_script(problem, folder, calls_path, answers_path)
        answer: dict[str, Any] = pickle.loads(answers_path.read_bytes())
    return answer


def _unsupported(answer: dict[str, Any]) -> list[str]:
    """Return the properties of a SavedModel that TensorFlow Serving does not support."""
    unknown = set(answer["text_operations"]) - TEXT_OPERATIONS
    forbidden = UNSUPPORTED_OPERATIONS & set(answer["operations"])
    return [
        *(f"operation {name}" for name in sorted(unknown | forbidden)),
        *answer["device_specific"],
        *(f"the clean process has imported {name}" for name in answer["forbidden_imports"]),
    ]


def _compare(name: str, inputs: Arrays, ours: Arrays, theirs: Arrays) -> float:
    """Return the largest difference of floats, or raise a UserError with the first difference."""
    largest = 0.0
    for key, expected in ours.items():
        found = theirs[key]
        if expected.shape != found.shape:
            raise UserError(
                f"{name}.{key}: the run returns shape {expected.shape}, the export shape "
                f"{found.shape}; nothing was published"
            )
        if np.issubdtype(expected.dtype, np.floating):
            difference = np.abs(expected - found)
            largest = max(largest, float(difference.max(initial=0.0)))
            wrong = ~(difference <= TOLERANCE)  # True for NaN as well
        else:
            wrong = expected != found
        if wrong.any():
            row = int(np.argwhere(wrong)[0][0])
            shown = {side: _shown(values[row]) for side, values in inputs.items()}
            raise UserError(
                f"{name}.{key}: the run returns {_shown(expected[row])}, the export "
                f"{_shown(found[row])} for {shown}; nothing was published"
            )
    return largest


def _shown(value: Any) -> str:
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return json.dumps(text[:200], ensure_ascii=False)


def _tensors(arrays: Arrays) -> dict[str, Any]:
    return {key: tf.constant(value) for key, value in arrays.items()}


def _arrays(tensors: Mapping[str, Any]) -> Arrays:
    return {key: value.numpy() for key, value in tensors.items()}


# --- Clean process --------------------------------------------------------------------------------


@contextmanager
def clean_process(script: str, python: str = sys.executable) -> Iterator[RunScript]:
    """Start a script in a process without tfnmt.

    The script does its imports, then reads its arguments from stdin as a JSON list. So the imports
    run in parallel to the work of this process.

    Args:
        script: The path of the script.
        python: The Python interpreter.
    """
    with subprocess.Popen(
        # -P: the folder of the script is not on sys.path.
        [python, "-P", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:

        def run_script(problem: str, *arguments: object) -> str:
            output, errors = process.communicate(json.dumps([*map(str, arguments)]))
            if process.returncode:
                last_line = (errors.strip() or "no message").splitlines()[-1]
                raise UserError(f"{problem}: {last_line}")
            return output

        try:
            yield run_script
        finally:
            process.kill()
