"""Callbacks between the steps: progress, checkpoints, and the end of a training run."""

import resource
import signal
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from types import FrameType

import keras
from tqdm import tqdm

from tfnmt.config import TrainingConfig
from tfnmt.data.batching.plan import Plan
from tfnmt.errors import UserError
from tfnmt.progress import log
from tfnmt.runs.run import Run
from tfnmt.runtime.files import remove_folder
from tfnmt.training.checkpoints import Progress, is_irregular, save_checkpoint
from tfnmt.training.loss import perplexity
from tfnmt.training.trainer import Stop

Logs = dict[str, float] | None

FORECAST_STEPS = 20
FORECAST_SECONDS = 30
"""The forecast is made after this many steps or seconds, whichever comes first."""

MAX_SKIPPED = 5
"""Training fails after this many consecutive steps without a finite gradient."""


class Clock(keras.callbacks.Callback):
    """Counts steps, tokens and seconds in the progress. Must run before all other callbacks."""

    def __init__(self, progress: Progress, plan: Plan) -> None:
        super().__init__()
        self.progress = progress
        self.plan = plan
        self._last = 0.0
        self._step_started = 0.0

    def on_train_begin(self, logs: Logs = None) -> None:
        """Start the clock of the whole training time."""
        self._last = time.monotonic()

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Start the clock of a step."""
        self._step_started = time.monotonic()

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Count a step."""
        assert logs is not None
        now = time.monotonic()
        progress = self.progress
        progress.seconds += now - self._last
        progress.busy += now - self._step_started
        self._last = now
        progress.step += 1
        progress.epoch, progress.batch = divmod(progress.step, self.plan.batches_per_epoch)
        progress.tokens += int(logs["tokens"])
        if logs["ended"] + logs["interrupted"] > 0:
            self.model.stop_training = True


class ProgressBar(keras.callbacks.Callback):
    """The progress bar on stderr."""

    def __init__(self, progress: Progress, last_step: int | None) -> None:
        super().__init__()
        self.progress = progress
        self.bar = tqdm(
            desc="training",
            unit="step",
            initial=progress.step,
            total=last_step,
            disable=None,
            file=sys.stderr,
            dynamic_ncols=True,
            mininterval=0.5,
        )
        self._start = Progress(tokens=progress.tokens, busy=progress.busy)

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Advance by a step."""
        assert logs is not None
        seconds = self.progress.busy - self._start.busy
        tokens_per_second = (self.progress.tokens - self._start.tokens) / max(seconds, 1e-9)
        self.bar.set_postfix_str(
            f"epoch {self.progress.epoch + 1}, loss {logs['loss']:.3f}, "
            f"perplexity {perplexity(logs['cross_entropy']):.2f}, "
            f"learning rate {logs['learning_rate']:.2e}, {tokens_per_second:,.0f} tokens/s",
            refresh=False,
        )
        self.bar.update()

    def on_train_end(self, logs: Logs = None) -> None:
        """Close the bar, which stays visible."""
        self.bar.close()


class Forecast(keras.callbacks.Callback):
    """Logs throughput and expected end, once, after some steps."""

    def __init__(
        self, progress: Progress, config: TrainingConfig, plan: Plan, end: int | None
    ) -> None:
        """Create the callback.

        Args:
            progress: The progress of the training run.
            config: The limits of the training run.
            plan: The plan of the batches.
            end: The last step, if it is known.
        """
        super().__init__()
        self.progress = progress
        self.config = config
        self.plan = plan
        self.end = end
        self._steps = -1  # the first step takes longer than the others and does not count
        self._seconds = 0.0
        self._tokens = 0
        self._step_started = 0.0
        self._logged = False

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Start the clock. Time between steps, such as validation, does not count."""
        self._step_started = time.monotonic()

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Stop the clock, and log the forecast after enough steps."""
        assert logs is not None
        if self._steps >= 0:
            self._seconds += time.monotonic() - self._step_started
            self._tokens += int(logs["tokens"])
        self._steps += 1
        enough = self._steps == FORECAST_STEPS or self._seconds >= FORECAST_SECONDS
        if enough and not self._logged:
            self._logged = True
            self._log()

    def _log(self) -> None:
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        throughput = self._tokens / self._seconds
        costs = f"{throughput:,.0f} target tokens/s, {memory:.1f} GB of memory so far"
        left = self._seconds_left()
        if left is None:
            log(f"forecast: {costs}, end unknown (it depends on training.patience)")
            return
        last_step = self.progress.step + left * self._steps / self._seconds
        epochs = last_step / self.plan.batches_per_epoch
        try:
            ends = datetime.now() + timedelta(seconds=left)
        except OverflowError:
            log(f"forecast: {costs}, end after the year 9999")
            return
        log(
            f"forecast: {costs}, {epochs:,.1f} epochs, done in {timedelta(seconds=round(left))} "
            f"({ends:%Y-%m-%d %H:%M}) without validation"
        )
        for problem in early_ends(self.config, round(last_step)):
            log(problem)

    def _seconds_left(self) -> float | None:
        """Return the time until the first limit; None if only patience ends the training run."""
        progress, config = self.progress, self.config
        left = []
        if self.end is not None:
            left.append((self.end - progress.step) * self._seconds / self._steps)
        if config.max_tokens is not None:
            left.append((config.max_tokens - progress.tokens) * self._seconds / self._tokens)
        if config.max_minutes is not None:
            left.append(60 * config.max_minutes - progress.seconds)
        return min(left, default=None)


def early_ends(config: TrainingConfig, last_step: int) -> Iterator[str]:
    """Yield a warning for each phase that a training run ends before, with a better setting."""
    for name, phase, share in (
        ("warmup_steps", "the warm-up does", 5),
        ("validation_steps", "the first validation", 10),
    ):
        steps = getattr(config, name)
        if steps > last_step:
            yield (
                f"training.{name}={steps}: the run ends after about {last_step:,} steps, before "
                f"{phase}; use --set training.{name}={max(1, last_step // share)}, or train longer"
            )


class Checkpointer(keras.callbacks.Callback):
    """Saves a checkpoint every `checkpoint_steps` and at the end. Must run after validation."""

    def __init__(self, run: Run, config: TrainingConfig, progress: Progress) -> None:
        super().__init__()
        self.run = run
        self.config = config
        self.progress = progress

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Save a regular checkpoint when it is due."""
        if self._is_due():
            self._save(self.config.keep_last, is_regular=True)

    def on_train_end(self, logs: Logs = None) -> None:
        """Save the steps since the last regular checkpoint."""
        if not self._is_due():
            self._save(self.config.keep_last + 1, is_regular=False)

    def _save(self, keep: int, is_regular: bool) -> None:
        """Save a checkpoint and remove earlier irregular ones, which interruptions left behind.

        An irregular checkpoint never displaces a regular one. So the last checkpoints, which are
        averaged, are the same as without an interruption.
        """
        irregular = [path for path in self.run.checkpoints().all() if is_irregular(path)]
        folder = self.run.checkpoints(keep + len(irregular))
        path = save_checkpoint(folder, self.model, self.progress, is_regular)
        for other in irregular:
            if other != path:
                remove_folder(other)

    def _is_due(self) -> bool:
        return self.progress.step % self.config.checkpoint_steps == 0


class Limits(keras.callbacks.Callback):
    """Ends training at its time limit, its token limit, or without improvement (patience)."""

    def __init__(self, config: TrainingConfig, progress: Progress) -> None:
        super().__init__()
        self.config = config
        self.progress = progress

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Stop at the first limit. Must run after validation."""
        if self.progress.reached_limits(self.config):
            self.model.request_stop(Stop.ENDED)


class Guard(keras.callbacks.Callback):
    """Counts skipped steps, and fails after several in a row."""

    def __init__(self, run: Run, progress: Progress) -> None:
        super().__init__()
        self.run = run
        self.progress = progress
        self._in_a_row = 0

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Log and count a step whose loss or gradient was not finite."""
        assert logs is not None
        if not logs["skipped"]:
            self._in_a_row = 0
            return
        self._in_a_row += 1
        self.progress.skipped += 1
        progress = self.progress
        log(f"step {progress.step:,}: loss or gradient is not finite; the step was skipped")
        if self._in_a_row == MAX_SKIPPED:
            raise UserError(
                f"step {progress.step:,} (epoch {progress.epoch}, batch {progress.batch}): loss or "
                f"gradient was not finite in {MAX_SKIPPED} consecutive steps; {self._advice()}, "
                "and lower training.learning_rate_scale or set training.clip_norm"
            )

    def _advice(self) -> str:
        if self.run.checkpoints().all():
            return (
                "the last checkpoint is intact: start another --run_dir with training.init_from "
                "set to this run"
            )
        return "start another --run_dir"


class Signals(keras.callbacks.Callback):
    """Ends training after the current step on Ctrl-C, SIGTERM or SIGHUP; at once on a second one.

    If several workers train together, a signal to one of them ends training on all.
    """

    caught: int | None = None

    def on_train_begin(self, logs: Logs = None) -> None:
        """Install the signal handlers."""
        self._before = {number: signal.signal(number, self._handle) for number in _stop_signals()}

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Stop if a signal has arrived, or was sent to another worker."""
        assert logs is not None
        if logs["interrupted"] > 0 and self.caught is None:
            self.caught = signal.SIGTERM
        elif self.caught is not None:
            self.model.request_stop(Stop.INTERRUPTED)

    def on_train_end(self, logs: Logs = None) -> None:
        """Restore the earlier signal handlers."""
        self._restore()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.caught = number
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def _stop_signals() -> Iterator[signal.Signals]:
    yield from (signal.SIGINT, signal.SIGTERM)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup does
        yield signal.SIGHUP
