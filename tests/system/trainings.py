"""Helpers for tests of whole training runs: a model that trains in seconds, processes, weights."""

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
    "data.max_pairs": 300,
    "data.batch_tokens": 160,
    "data.max_length": 32,
    "tokenizer.vocab_size": 280,
    "model.num_encoder_layers": 1,
    "model.num_decoder_layers": 1,
    "model.d_model": 16,
    "model.d_ff": 32,
    "model.dropout": 0.0,
    "training.warmup_steps": 5,
    "training.log_steps": 1,
    "training.checkpoint_steps": 10,
    "training.average_last": 1,
    "decoding.beam_size": 1,
}


def arguments(run: Path, changes: dict[str, object]) -> list[str]:
    """Return the flags of a training run on the copy corpus.

    Args:
        run: The run folder.
        changes: Changed settings. `model__dropout=0.3` becomes `--set=model.dropout=0.3`.
    """
    settings = SETTINGS | {key.replace("__", "."): value for key, value in changes.items()}
    return [
        "--dataset=copy",
        f"--run_dir={run}",
        f"--cache_dir={run.parent / 'cache'}",
        *(f"--set={key}={value}" for key, value in settings.items()),
    ]


@contextmanager
def processes() -> Iterator[Callable[..., Process]]:
    """Provide a function that starts commands. At the end, those still running are killed."""
    running: list[Process] = []

    def start(command: list[str], **options: Any) -> Process:
        running.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options))
        return running[-1]

    yield start
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


def finish(process: Process, code: int = 0, timeout: float = 400) -> str:
    """Wait until a process exits, check its exit status, and return its stderr."""
    errors = process.communicate(timeout=timeout)[1]
    assert process.returncode == code, errors
    return errors


def weights(run: Run) -> np.ndarray:
    """Return all weights of a run in one array, except the biases of keys.

    Softmax cancels these biases. Their gradient is 0 except for rounding, which Adam amplifies to
    full steps.
    """
    found: list[np.ndarray] = []

    def collect(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset) and not name.endswith("/key/vars/1"):
            found.append(np.ravel(item[()]))

    with h5py.File(run.weights()) as file:
        file.visititems(collect)
    return np.concatenate(found)


def logged_losses(run: Run) -> dict[int, float]:
    """Return the loss of every logged step from TensorBoard's files.

    Steps that were repeated after a kill must have the same loss each time.
    """
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    from tensorboard.util.tensor_util import make_ndarray

    losses: dict[int, float] = {}
    for path in sorted(run.logs.glob("events*")):
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                if value.tag == "train/loss":
                    loss = float(make_ndarray(value.tensor))
                    assert losses.setdefault(event.step, loss) == loss
    return losses
