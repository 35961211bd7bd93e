"""A forecast of the time until the student is trained.

Checkpoints record the training time of their steps. From it follows the speed of training on this
machine, in weights times padded tokens per second, and the time of all runs to come. It includes
the time of building graphs, so the first forecasts are too long. The speed of translating is that
of the translations so far.
"""

import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from tfnmt.diversification.stages import Stage, Training, Translation
from tfnmt.runs.checkpoints import STATE
from tfnmt.runs.run import Run
from tfnmt.runtime.files import parse_json, write_atomically
from tfnmt.training.sizing import BYTES_PER_TOKEN, SIZES, expected_steps
from tfnmt.training.speed import step_work


class Text(NamedTuple):
    """The amount of real text."""

    lines: int
    target_tokens: int  # an estimate


class Speed(NamedTuple):
    """Lines translated so far and their time."""

    lines: int = 0
    seconds: float = 0.0


def measure(path: Path) -> Text:
    """Return the amount of text in a file."""
    with path.open("rb") as file:
        lines = sum(1 for _ in file)
    return Text(lines, path.stat().st_size // BYTES_PER_TOKEN + lines)


def forecast(stages: Sequence[Stage], text: Text, speed: Speed) -> str | None:
    """Describe the time that is left; None if no checkpoint has been written yet."""
    trainings = [stage for stage in stages if isinstance(stage, Training)]
    progress = [_progress(stage) for stage in trainings]
    seconds = sum(each.seconds for each in progress)
    if seconds == 0:
        return None
    done = zip(trainings, progress, strict=True)
    work = sum(each.steps * step_work(stage.config) for stage, each in done)
    left = sum(
        _seconds_left(stage, text, work / seconds, each)
        for stage, each in zip(trainings, progress, strict=True)
        if not stage.finished
    )
    translations = [each for each in stages if isinstance(each, Translation) and not each.finished]
    if translations and not speed.lines:
        return f"{_format(left)} of training left, and {len(translations)} translations"
    per_line = speed.seconds / speed.lines if translations else 0.0
    return f"{_format(left + len(translations) * text.lines * per_line)} left"


class _Progress(NamedTuple):
    steps: int
    seconds: float


def _progress(training: Training) -> _Progress:
    """Return the progress of the newest checkpoint."""
    newest = Run(training.path).checkpoints().newest()
    try:
        state = parse_json((newest / STATE).read_bytes()) if newest else {"step": 0, "seconds": 0}
        return _Progress(state["step"], state["seconds"])
    except (OSError, KeyError, ValueError):  # training has just replaced the checkpoint
        return _Progress(0, 0.0)


def _seconds_left(stage: Training, text: Text, speed: float, progress: _Progress) -> float:
    """Return the time that a run still takes, including its time limit."""
    config = stage.config
    steps = expected_steps(config, stage.copies * text.target_tokens, SIZES[0].max_epochs)
    left = max(0, steps - progress.steps) * step_work(config) / speed
    minutes = config.training.max_minutes
    return left if minutes is None else min(left, max(0.0, 60 * minutes - progress.seconds))


def _format(seconds: float) -> str:
    return f"about {timedelta(seconds=round(seconds))}"


# --- The speed of translating ---------------------------------------------------------------------


def read_speed(path: Path) -> Speed:
    """Return the recorded speed; none if there is no record."""
    try:
        return Speed(**parse_json(path.read_bytes()))
    except (OSError, TypeError, ValueError):
        return Speed()


def add_to_speed(path: Path, lines: int, seconds: float) -> None:
    """Add translated lines and their time to the record."""
    before = read_speed(path)
    total = Speed(before.lines + lines, before.seconds + seconds)
    write_atomically(path, (json.dumps(total._asdict()) + "\n").encode())
