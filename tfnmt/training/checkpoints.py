"""Checkpoints, which contain everything that an exact resume needs, and averages of weights."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tfnmt.config import TrainingConfig
from tfnmt.errors import UserError
from tfnmt.model.transformer import Transformer
from tfnmt.progress import log
from tfnmt.runs.checkpoints import (
    AVERAGED,
    STATE,
    WEIGHTS,
    CheckpointFolder,
    check_tokenizer,
    is_complete,
)
from tfnmt.runs.run import Run
from tfnmt.runtime.cluster import is_chief
from tfnmt.runtime.files import check_disk_space, parse_json, remove_folder
from tfnmt.training.trainer import Trainer

OVERHEAD = 2**20
"""Bytes of a weights file in addition to its arrays, a generous estimate."""

OPTIMIZER = "optimizer.npz"

IRREGULAR = "irregular"
"""The key in state.json of a checkpoint that was not due."""


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

    def reached_limits(self, config: TrainingConfig) -> list[str]:
        """Return the limits of tokens, minutes and patience that are reached, by their keys."""
        values = {
            "max_tokens": self.tokens,
            "max_minutes": self.seconds / 60,
            "patience": self.worse,
        }
        limits = config.model_dump()
        return [key for key in values if limits[key] is not None and values[key] >= limits[key]]


def save_checkpoint(
    checkpoints: CheckpointFolder, trainer: Trainer, progress: Progress, is_regular: bool = True
) -> Path:
    """Write a checkpoint. It appears only when it is complete.

    Args:
        checkpoints: The folder of checkpoints.
        trainer: The trainer whose weights and optimizer state are saved.
        progress: The progress of the training run.
        is_regular: Whether the checkpoint was due. The next one replaces it otherwise.

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
        state = asdict(progress) | ({} if is_regular else {IRREGULAR: True})
        (folder / STATE).write_text(json.dumps(state, indent=1) + "\n")

    return checkpoints.write(progress.step, fill)


def is_irregular(path: Path) -> bool:
    """Return whether a checkpoint was saved only because training was interrupted or ended."""
    try:
        return IRREGULAR in parse_json((path / STATE).read_bytes())
    except (OSError, TypeError, ValueError):
        return False


def restore_checkpoint(run: Run, trainer: Trainer) -> Progress:
    """Restore the newest complete checkpoint, and remove newer damaged ones.

    Without a complete one, nothing is removed.

    Args:
        run: The run folder.
        trainer: The trainer whose weights and optimizer state are set.

    Returns:
        The progress of the checkpoint; the progress at step 0 if the run has no weights.

    Raises:
        UserError: The run has weights, but no complete checkpoint.
    """
    paths = run.checkpoints().all()
    newest = next((path for path in reversed(paths) if is_complete(path)), None)
    if newest is None:
        if paths:
            raise run.no_checkpoint_left()
        run.check_resumable()
        return Progress()
    for path in paths[paths.index(newest) + 1 :]:
        if is_chief():
            log(f"{path}: damaged, removed; resuming from the previous checkpoint")
            remove_folder(path)
    return _restore(newest, trainer)


def _restore(path: Path, trainer: Trainer) -> Progress:
    """Set weights and optimizer state of a trainer; returns the progress of the checkpoint."""
    check_tokenizer(path)
    trainer.transformer.load_weights(path / WEIGHTS)
    try:
        with np.load(path / OPTIMIZER) as arrays:
            for number, variable in enumerate(trainer.optimizer.variables):
                variable.assign(arrays[f"arr_{number}"])
        state = parse_json((path / STATE).read_bytes())
        return Progress(**{key: state[key] for key in state if key != IRREGULAR})
    except (OSError, KeyError, TypeError, ValueError) as error:  # checksums match: another version
        raise UserError(
            f"{path}: cannot be resumed by this version ({error}); use the version that made it, "
            "or start another --run_dir with training.init_from set to this run"
        ) from error


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
