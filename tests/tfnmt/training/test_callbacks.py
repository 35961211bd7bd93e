"""The callbacks between the steps, without training."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tfnmt.config import TrainingConfig
from tfnmt.errors import UserError
from tfnmt.runs.run import Run
from tfnmt.training import callbacks
from tfnmt.training.callbacks import (
    FORECAST_STEPS,
    MAX_SKIPPED,
    Clock,
    Forecast,
    Guard,
    Signals,
    early_ends,
)
from tfnmt.training.checkpoints import Progress
from tfnmt.training.trainer import Stop


class TwoBatches:
    """The part of a plan that the callbacks use."""

    batches_per_epoch = 2


def logs(skipped: float) -> dict[str, float]:
    return {"skipped": skipped}


def test_guard_logs_and_counts_skipped_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    progress = Progress(step=7)
    guard = Guard(Run(tmp_path), progress)
    for skipped in (0.0, 1.0, 0.0, 1.0):
        guard.on_train_batch_end(0, logs(skipped))
    assert progress.skipped == 2
    line = "tfnmt: step 7: loss or gradient is not finite; the step was skipped\n"
    assert capsys.readouterr().err == 2 * line


def test_guard_fails_after_several_consecutive_skipped_steps(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.checkpoints().write(8, lambda folder: None)
    guard = Guard(run, Progress(step=9, epoch=2, batch=3))
    for _ in range(MAX_SKIPPED - 1):
        guard.on_train_batch_end(0, logs(1.0))
    guard.on_train_batch_end(0, logs(0.0))
    for _ in range(MAX_SKIPPED - 1):
        guard.on_train_batch_end(0, logs(1.0))
    with pytest.raises(UserError, match=r"step 9 \(epoch 2, batch 3\): .*training\.init_from"):
        guard.on_train_batch_end(0, logs(1.0))


def test_guard_recommends_no_checkpoint_if_there_is_none(tmp_path: Path) -> None:
    guard = Guard(Run(tmp_path), Progress())
    for _ in range(MAX_SKIPPED - 1):
        guard.on_train_batch_end(0, logs(1.0))
    with pytest.raises(UserError, match="steps; start another --run_dir, and lower"):
        guard.on_train_batch_end(0, logs(1.0))


@pytest.mark.parametrize(
    ("end", "limits", "expected"),
    [
        (100, {"max_epochs": 50}, "50.0 epochs, done in "),
        (None, {"max_epochs": None, "max_minutes": 60}, " epochs, done in "),
        (None, {"max_epochs": None, "patience": 3}, "training.patience"),
        (None, {"max_epochs": None, "max_minutes": 1e12}, "end after the year 9999"),
    ],
)
def test_forecast_reports_the_end_if_it_is_known(
    end: int | None, limits: dict[str, Any], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    progress = Progress()
    forecast = Forecast(progress, TrainingConfig(**limits), TwoBatches(), end)
    for progress.step in range(1, FORECAST_STEPS + 2):
        forecast.on_train_batch_begin(0)
        time.sleep(0.001)
        forecast.on_train_batch_end(0, {"tokens": 10.0})
    err = capsys.readouterr().err
    assert err.count("tfnmt: forecast: ") == 1
    assert expected in err


def test_early_end_is_reported_with_a_setting_that_is_reached() -> None:
    config = TrainingConfig(warmup_steps=4000, validation_steps=1000)
    warmup, validation = early_ends(config, 402)
    assert warmup.startswith("training.warmup_steps=4000: ")
    assert "--set training.warmup_steps=80," in warmup
    assert validation.startswith("training.validation_steps=1000: ")
    assert "--set training.validation_steps=40," in validation
    assert not [*early_ends(config, 4000)]


@pytest.mark.parametrize(
    ("limit", "progress", "reached"),
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
def test_progress_reaches_limits_of_tokens_minutes_and_patience(
    limit: dict[str, float], progress: Progress, reached: bool
) -> None:
    assert bool(progress.reached_limits(TrainingConfig(**limit))) == reached


def test_clock_separates_the_time_in_steps_from_the_time_between_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each step takes one second, and a validation after it takes five."""
    now = 0.0
    monkeypatch.setattr(callbacks.time, "monotonic", lambda: now)
    progress = Progress()
    clock = Clock(progress, TwoBatches())
    clock.on_train_begin()
    for _ in range(3):
        clock.on_train_batch_begin(0)
        now += 1.0
        clock.on_train_batch_end(0, {"tokens": 10.0, "ended": 0.0, "interrupted": 0.0})
        now += 5.0
    assert (progress.busy, progress.seconds) == (3.0, 13.0)


# --- Signals --------------------------------------------------------------------------------------


class StubModel:
    """Counts the requests to stop because of a signal."""

    requests = 0

    def request_stop(self, reason: Stop) -> None:
        self.requests += reason is Stop.INTERRUPTED


def after_step(interrupted: float = 0.0) -> dict[str, float]:
    """Return the logs of a step."""
    return {"interrupted": interrupted}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_first_signal_stops_after_the_step_and_a_second_one_at_once(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(number)
    earlier: list[int] = []
    signal.signal(number, lambda received, frame: earlier.append(received))
    try:
        signals, model = Signals(), StubModel()
        monkeypatch.setattr(Signals, "model", model)
        signals.on_train_begin()
        signals.on_train_batch_end(0, after_step())
        assert (signals.caught, model.requests) == (None, 0)
        os.kill(os.getpid(), number)
        signals.on_train_batch_end(1, after_step())
        assert (signals.caught, model.requests, earlier) == (number, 1, [])
        os.kill(os.getpid(), number)
        assert earlier == [number]
        signals.on_train_end()
    finally:
        signal.signal(number, before)


def test_signal_to_another_worker_counts_as_a_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    signals, model = Signals(), StubModel()
    monkeypatch.setattr(Signals, "model", model)
    signals.on_train_batch_end(0, after_step(interrupted=1.0))
    assert (signals.caught, model.requests) == (signal.SIGTERM, 0)


def test_ignored_sighup_does_not_stop_training(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        signals = Signals()
        signals.on_train_begin()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        signals.on_train_end()
    finally:
        signal.signal(signal.SIGHUP, before)
