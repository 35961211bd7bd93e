"""Checkpoints, which contain everything that an exact resume needs, and averages of weights."""

import json
import math
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tfnmt.config import TrainingConfig
from tfnmt.model.transformer import Transformer
from tfnmt.progress import log
from tfnmt.runs.checkpoints import AVERAGED, WEIGHTS, CheckpointFolder, is_complete
from tfnmt.runs.run import Run
from tfnmt.runtime.files import check_disk_space
from tfnmt.training.trainer import Trainer

OVERHEAD = 2**20
"""Bytes of a weights file in addition to its arrays, a generous estimate."""

OPTIMIZER = "optimizer.npz"
STATE = "state.json"


@dataclass
class Progress:
    """The progress of a training run. The field names are keys of state.json and summary.json."""

    step: int = 0  # steps made
    epoch: int = 0  # complete epochs
    batch: int = 0  # batches of the epoch after them
    tokens: int = 0  # target tokens, without padding
    seconds: float = 0.0  # training time without pauses
    busy: float = 0.0  # training time in steps: without validations and checkpoints
    best_bleu: float = -1.0  # on the validation set; below 0 before the first validation
    worse: int = 0  # validations since the best one
    skipped: int = 0  # steps without a finite gradient, which changed nothing

    def reached_limit(self, config: TrainingConfig) -> bool:
        """Return whether the limit of tokens, minutes or patience is reached."""
        reached = (
            (self.tokens, config.max_tokens),
            (self.seconds / 60, config.max_minutes),
            (self.worse, config.patience),
        )
        return any(limit is not None and value >= limit for value, limit in reached)


def save_checkpoint(checkpoints: CheckpointFolder, trainer: Trainer, progress: Progress) -> Path:
    """Write a checkpoint. It appears only when it is complete.

    Args:
        checkpoints: The folder of checkpoints.
        trainer: The trainer whose weights and optimizer state are saved.
        progress: The progress of the training run.

    Returns:
        The folder of the new checkpoint.
    """

    def fill(folder: Path) -> None:
        check_disk_space(
            folder, _file_size(trainer.transformer.variables + trainer.optimizer.variables)
        )
        trainer.transformer.save_weights(folder / WEIGHTS)
        arrays = [np.asarray(variable) for variable in trainer.optimizer.variables]
        np.savez(folder / OPTIMIZER, *arrays)
        (folder / STATE).write_text(json.dumps(asdict(progress), indent=1) + "\n")

    return checkpoints.write(progress.step, fill)


def restore_checkpoint(run: Run, trainer: Trainer) -> Progress:
    """Restore the newest complete checkpoint, and remove newer damaged ones.

    Args:
        run: The run folder.
        trainer: The trainer whose weights and optimizer state are set.

    Returns:
        The progress of the checkpoint; the progress at step 0 if there is no checkpoint.
    """
    for path in reversed(run.checkpoints().all()):
        if not is_complete(path):
            log(f"{path}: damaged, removed; resuming from the previous checkpoint, if there is one")
            shutil.rmtree(path)
            continue
        trainer.transformer.load_weights(path / WEIGHTS)
        with np.load(path / OPTIMIZER) as arrays:
            for number, variable in enumerate(trainer.optimizer.variables):
                variable.assign(arrays[f"arr_{number}"])
        return Progress(**json.loads((path / STATE).read_text()))
    return Progress()


def save_weights(
    checkpoints: CheckpointFolder,
    transformer: Transformer,
    step: int,
    averaged: Sequence[Path] = (),
) -> Path:
    """Write a checkpoint with the weights only, for translating.

    Args:
        checkpoints: The folder of checkpoints.
        transformer: The Transformer whose weights are saved.
        step: The step of the weights, which names the checkpoint.
        averaged: The checkpoints whose average the weights are. Their steps are recorded.

    Returns:
        The folder of the new checkpoint.
    """

    def fill(folder: Path) -> None:
        check_disk_space(folder, _file_size(transformer.variables))
        transformer.save_weights(folder / WEIGHTS)
        if averaged:
            steps = [int(path.name) for path in averaged]
            (folder / AVERAGED).write_text(json.dumps(steps) + "\n")

    return checkpoints.write(step, fill)


def average_weights(paths: list[Path], transformer: Transformer) -> None:
    """Set the weights of a Transformer to the mean of some checkpoints (section 6.1).

    Args:
        paths: The folders of the checkpoints, all with weights of the Transformer's shapes.
        transformer: The Transformer whose weights are set.
    """
    sums = [np.zeros(variable.shape, np.float64) for variable in transformer.variables]
    for path in paths:
        transformer.load_weights(path / WEIGHTS)
        for total, variable in zip(sums, transformer.variables, strict=True):
            total += np.asarray(variable)
    for total, variable in zip(sums, transformer.variables, strict=True):
        variable.assign(total / len(paths))


def _file_size(variables: list[Any]) -> int:
    """Return the approximate size of a file with float32 variables, in bytes."""
    return sum(4 * math.prod(variable.shape) for variable in variables) + OVERHEAD
