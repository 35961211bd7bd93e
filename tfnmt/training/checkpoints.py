"""Checkpoints: all that a training needs to go on as if it had never stopped."""

import json
import math
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tfnmt.config import TrainingConfig
from tfnmt.model.transformer import Transformer
from tfnmt.progress import say
from tfnmt.runs.checkpoints import WEIGHTS, Snapshots, snapshot_is_whole
from tfnmt.runs.run import Run
from tfnmt.runtime.files import check_room
from tfnmt.training.trainer import Trainer

OVERHEAD = 2**20
"""Bytes that a file holds beside its arrays, generously."""

OPTIMIZER = "optimizer.npz"
STATE = "state.json"


@dataclass
class Progress:
    """How far a training has come."""

    step: int = 0  # updates made
    epoch: int = 0  # whole passes over the data
    batch: int = 0  # batches into the next one
    tokens: int = 0  # real target tokens read
    seconds: float = 0.0  # time spent in training, pauses left out
    busy: float = 0.0  # seconds of it in updates, validations and checkpoints left out
    best_bleu: float = -1.0  # on val; below 0 before the first validation
    worse: int = 0  # validations since the best one
    skipped: int = 0  # updates left out, for their gradient was not finite

    def is_over(self, config: TrainingConfig) -> bool:
        """Whether the training has reached its end by tokens, minutes or patience."""
        reached = (
            (self.tokens, config.max_tokens),
            (self.seconds / 60, config.max_minutes),
            (self.worse, config.patience),
        )
        return any(limit is not None and value >= limit for value, limit in reached)


def save_checkpoint(snapshots: Snapshots, trainer: Trainer, progress: Progress) -> Path:
    """Writes a checkpoint; it appears only when it is whole."""

    def fill(folder: Path) -> None:
        check_room(folder, _size(trainer.transformer.variables + trainer.optimizer.variables))
        trainer.transformer.save_weights(folder / WEIGHTS)
        arrays = [np.asarray(variable) for variable in trainer.optimizer.variables]
        np.savez(folder / OPTIMIZER, *arrays)
        (folder / STATE).write_text(json.dumps(asdict(progress), indent=1) + "\n")

    return snapshots.write(progress.step, fill)


def restore_checkpoint(run: Run, trainer: Trainer) -> Progress:
    """Loads the newest checkpoint that is whole; without one the training is at its beginning."""
    for path in reversed(run.checkpoints().all()):
        if not snapshot_is_whole(path):
            say(f"{path}: damaged, removed; the checkpoint before it is used, if there is one")
            shutil.rmtree(path)
            continue
        trainer.transformer.load_weights(path / WEIGHTS)
        with np.load(path / OPTIMIZER) as arrays:
            for number, variable in enumerate(trainer.optimizer.variables):
                variable.assign(arrays[f"arr_{number}"])
        return Progress(**json.loads((path / STATE).read_text()))
    return Progress()


def save_weights(snapshots: Snapshots, transformer: Transformer, step: int) -> Path:
    """Writes the weights alone, to translate with."""

    def fill(folder: Path) -> None:
        check_room(folder, _size(transformer.variables))
        transformer.save_weights(folder / WEIGHTS)

    return snapshots.write(step, fill)


def average_weights(paths: list[Path], transformer: Transformer) -> None:
    """Gives the Transformer the mean of the weights of some snapshots (section 6.1)."""
    sums = [np.zeros(variable.shape, np.float64) for variable in transformer.variables]
    for path in paths:
        transformer.load_weights(path / WEIGHTS)
        for total, variable in zip(sums, transformer.variables, strict=True):
            total += np.asarray(variable)
    for total, variable in zip(sums, transformer.variables, strict=True):
        variable.assign(total / len(paths))


def _size(variables: list[Any]) -> int:
    """About the bytes that variables of float32 take in a file."""
    return sum(4 * math.prod(variable.shape) for variable in variables) + OVERHEAD
