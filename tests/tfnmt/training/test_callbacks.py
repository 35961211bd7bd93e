"""What happens between the steps, without a training."""

import time
from typing import Any

import pytest

from tfnmt.config import TrainingConfig
from tfnmt.errors import UserError
from tfnmt.training import callbacks
from tfnmt.training.callbacks import FORECAST_STEPS, MAX_SKIPPED, Clock, Forecast, Guard
from tfnmt.training.checkpoints import Progress


def logs(skipped: float) -> dict[str, float]:
    return {"skipped": skipped}


def test_skipped_steps_are_told_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(step=7)
    guard = Guard(progress)
    for skipped in (0.0, 1.0, 0.0, 1.0):
        guard.on_train_batch_end(0, logs(skipped))
    assert progress.skipped == 2
    told = "tfnmt: step 7: loss or gradient is not finite; the step was skipped\n"
    assert capsys.readouterr().err == 2 * told


def test_several_skipped_steps_in_a_row_end_the_training() -> None:
    guard = Guard(Progress(step=9, epoch=2, batch=3))
    for _ in range(MAX_SKIPPED - 1):
        guard.on_train_batch_end(0, logs(1.0))
    guard.on_train_batch_end(0, logs(0.0))
    for _ in range(MAX_SKIPPED - 1):
        guard.on_train_batch_end(0, logs(1.0))
    with pytest.raises(UserError, match=r"step 9 \(epoch 2, batch 3\): loss or gradient was not"):
        guard.on_train_batch_end(0, logs(1.0))


class TwoBatches:
    """All that a forecast asks of a plan."""

    batches_per_epoch = 2


@pytest.mark.parametrize(
    ("end", "limits", "told"),
    [
        (100, {"max_epochs": 50}, "50.0 passes over the data, done in "),
        (None, {"max_epochs": None, "max_minutes": 60}, " passes over the data, done in "),
        (None, {"max_epochs": None, "patience": 3}, "when it ends is for training.patience to say"),
    ],
)
def test_a_forecast_tells_the_end_where_it_is_known(
    end: int | None, limits: dict[str, Any], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    progress = Progress()
    forecast = Forecast(progress, TrainingConfig(**limits), TwoBatches(), end)
    for progress.step in range(1, FORECAST_STEPS + 2):
        forecast.on_train_batch_begin(0)
        time.sleep(0.001)
        forecast.on_train_batch_end(0, {"tokens": 10.0})
    err = capsys.readouterr().err
    assert err.count("tfnmt: forecast: ") == 1
    assert told in err


@pytest.mark.parametrize(
    ("limit", "progress", "over"),
    [
        ({"max_tokens": 100}, Progress(tokens=99), False),
        ({"max_tokens": 100}, Progress(tokens=100), True),
        ({"max_minutes": 1.5}, Progress(seconds=89), False),
        ({"max_minutes": 1.5}, Progress(seconds=90), True),
        ({"patience": 3}, Progress(worse=2), False),
        ({"patience": 3}, Progress(worse=3), True),
        ({}, Progress(tokens=10**9, seconds=10**9, worse=10**9), False),
    ],
)
def test_tokens_minutes_and_patience_end_a_training(
    limit: dict[str, float], progress: Progress, over: bool
) -> None:
    assert progress.is_over(TrainingConfig(**limit)) == over


def test_the_clock_tells_the_time_of_updates_from_that_between_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A validation takes five seconds, after each update of one."""
    now = 0.0
    monkeypatch.setattr(callbacks.time, "monotonic", lambda: now)
    progress = Progress()
    clock = Clock(progress, TwoBatches())
    clock.on_train_begin()
    for _ in range(3):
        clock.on_train_batch_begin(0)
        now += 1.0
        clock.on_train_batch_end(0, {"tokens": 10.0, "stop": 0.0})
        now += 5.0
    assert (progress.busy, progress.seconds) == (3.0, 13.0)
