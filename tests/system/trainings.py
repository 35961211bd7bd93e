"""What tests of whole trainings share: a model that trains in seconds, its process, its weights."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from tfnmt.runs.run import Run

Process = subprocess.Popen[str]

SETTINGS = {
    "data.max_pairs": 300, "data.batch_tokens": 160, "data.max_length": 32,
    "tokenizer.vocab_size": 280, "model.num_encoder_layers": 1, "model.num_decoder_layers": 1,
    "model.d_model": 16, "model.d_ff": 32, "model.dropout": 0.0, "training.warmup_steps": 5,
    "training.checkpoint_steps": 10, "training.average_last": 1,
}  # fmt: skip


def arguments(run: Path, changes: dict[str, object]) -> list[str]:
    """Flags of a training on the copy corpus: `model__dropout=0.3` is `--set=model.dropout=0.3`."""
    settings = SETTINGS | {key.replace("__", "."): value for key, value in changes.items()}
    return [
        "--dataset=copy", f"--run_dir={run}", f"--cache_dir={run.parent / 'cache'}",
        *(f"--set={key}={value}" for key, value in settings.items()),
    ]  # fmt: skip


@contextmanager
def processes() -> Iterator[Callable[..., Process]]:
    """Starts commands; what still runs at the end is killed."""
    running: list[Process] = []

    def start(command: list[str], **options: Any) -> Process:
        running.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options))
        return running[-1]

    yield start
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


def finish(process: Process, code: int = 0) -> str:
    """Waits for the end, which must be the one expected; what was said on stderr."""
    errors = process.communicate(timeout=400)[1]
    assert process.returncode == code, errors
    return errors


def weights(run: Run) -> np.ndarray:
    """The weights of a run, end to end, but for the biases of keys.

    Softmax cancels those: their gradient is 0 but for rounding, which Adam blows up to full steps.
    """
    found: list[np.ndarray] = []

    def note(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset) and not name.endswith("/key/vars/1"):
            found.append(np.ravel(item[()]))

    with h5py.File(run.weights()) as file:
        file.visititems(note)
    return np.concatenate(found)
