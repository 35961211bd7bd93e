"""What happens between the updates: the bar, checkpoints, the end."""

import resource
import shutil
import signal
import sys
import time
from datetime import datetime, timedelta
from types import FrameType

import keras
from tqdm import tqdm

from tfnmt.config import TrainingConfig
from tfnmt.data.batching.plan import Plan
from tfnmt.errors import UserError
from tfnmt.progress import say
from tfnmt.runs.run import Run
from tfnmt.training.checkpoints import Progress, save_checkpoint
from tfnmt.training.loss import perplexity

Logs = dict[str, float] | None

FORECAST_STEPS = 20
FORECAST_SECONDS = 30
"""What a forecast goes by, whichever comes first."""

MAX_SKIPPED = 5
"""Steps in a row whose gradient may be other than finite."""


class Clock(keras.callbacks.Callback):
    """Counts steps, tokens and seconds into the progress; goes before all other callbacks."""

    def __init__(self, progress: Progress, plan: Plan) -> None:
        super().__init__()
        self.progress = progress
        self.plan = plan
        self._last = 0.0
        self._began = 0.0

    def on_train_begin(self, logs: Logs = None) -> None:
        """Starts the clock."""
        self._last = time.monotonic()

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Starts that of the update."""
        self._began = time.monotonic()

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Counts a step."""
        assert logs is not None
        now = time.monotonic()
        progress = self.progress
        progress.seconds += now - self._last
        progress.busy += now - self._began
        self._last = now
        progress.step += 1
        progress.epoch, progress.batch = divmod(progress.step, self.plan.batches_per_epoch)
        progress.tokens += int(logs["tokens"])
        if logs["stop"] > 0:
            self.model.stop_training = True


class Bar(keras.callbacks.Callback):
    """The progress bar on stderr."""

    def __init__(self, progress: Progress, last_step: int | None) -> None:
        super().__init__()
        self.progress = progress
        self.bar = tqdm(
            desc="training", unit="step", initial=progress.step, total=last_step,
            disable=None, file=sys.stderr, dynamic_ncols=True, mininterval=0.5,
        )  # fmt: skip
        self._begun = Progress(tokens=progress.tokens, busy=progress.busy)

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Moves on by a step."""
        assert logs is not None
        seconds = self.progress.busy - self._begun.busy
        rate = (self.progress.tokens - self._begun.tokens) / max(seconds, 1e-9)
        self.bar.set_postfix_str(
            f"epoch {self.progress.epoch + 1}, loss {logs['loss']:.3f}, "
            f"perplexity {perplexity(logs['cross_entropy']):.2f}, "
            f"rate {logs['learning_rate']:.2e}, {rate:,.0f} tokens/s",
            refresh=False,
        )
        self.bar.update()

    def on_train_end(self, logs: Logs = None) -> None:
        """Leaves the bar as it is."""
        self.bar.close()


class Forecast(keras.callbacks.Callback):
    """Says once, after some steps, how fast it goes and when it will end."""

    def __init__(
        self, progress: Progress, config: TrainingConfig, plan: Plan, end: int | None
    ) -> None:
        """`end` is the last update, where that is known."""
        super().__init__()
        self.progress = progress
        self.config = config
        self.plan = plan
        self.end = end
        self._steps = -1  # the first one takes longer than the others and does not count
        self._seconds = 0.0
        self._tokens = 0
        self._began = 0.0
        self._told = False

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Starts the clock: what lies between two steps, as validation does, is not in it."""
        self._began = time.monotonic()

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Stops it, and speaks when there is enough to go by."""
        assert logs is not None
        if self._steps >= 0:
            self._seconds += time.monotonic() - self._began
            self._tokens += int(logs["tokens"])
        self._steps += 1
        enough = self._steps == FORECAST_STEPS or self._seconds >= FORECAST_SECONDS
        if enough and not self._told:
            self._told = True
            say(self._forecast(self._steps, self._seconds, self._tokens))

    def _forecast(self, steps: int, seconds: float, tokens: int) -> str:
        progress, config = self.progress, self.config
        left = []
        if self.end is not None:
            left.append((self.end - progress.step) * seconds / steps)
        if config.max_tokens is not None:
            left.append((config.max_tokens - progress.tokens) * seconds / tokens)
        if config.max_minutes is not None:
            left.append(60 * config.max_minutes - progress.seconds)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        costs = f"{tokens / seconds:,.0f} target tokens/s, {memory:.1f} GB of memory so far"
        if not left:
            return f"forecast: {costs}; when it ends is for training.patience to say"
        passes = (progress.step + min(left) * steps / seconds) / self.plan.batches_per_epoch
        ends = datetime.now() + timedelta(seconds=min(left))
        return (
            f"forecast: {costs}, {passes:,.1f} passes over the data, done in "
            f"{timedelta(seconds=round(min(left)))} ({ends:%Y-%m-%d %H:%M}) but for validation"
        )


class Checkpointer(keras.callbacks.Callback):
    """Writes a checkpoint every `checkpoint_steps` and at the end; goes after validation."""

    def __init__(self, run: Run, config: TrainingConfig, progress: Progress) -> None:
        super().__init__()
        self.run = run
        self.config = config
        self.progress = progress

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Saves when it is time."""
        if self._is_regular(self.progress.step):
            self._save(self.config.keep_last)

    def on_train_end(self, logs: Logs = None) -> None:
        """Saves what came after the last checkpoint."""
        if not self._is_regular(self.progress.step):
            self._save(self.config.keep_last + 1)

    def _save(self, keep: int) -> None:
        """Saves; what an interruption had saved goes, and costs no regular checkpoint its place.

        So the last ones, which are averaged, are those of a training that was never interrupted.
        """
        snapshots = self.run.checkpoints(keep)
        path = save_checkpoint(snapshots, self.model, self.progress)
        for other in snapshots.all():
            if other != path and not self._is_regular(int(other.name)):
                shutil.rmtree(other)

    def _is_regular(self, step: int) -> bool:
        return step % self.config.checkpoint_steps == 0


class Limits(keras.callbacks.Callback):
    """Ends the training by its clock, its tokens, or validations that bring nothing better."""

    def __init__(self, config: TrainingConfig, progress: Progress) -> None:
        super().__init__()
        self.config = config
        self.progress = progress

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Stops when one of them is reached; goes after validation."""
        if self.progress.is_over(self.config):
            self.model.request_stop()


class Guard(keras.callbacks.Callback):
    """Counts the steps that were skipped, and gives up after several in a row."""

    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self.progress = progress
        self._in_a_row = 0

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Notes a loss or gradient that is not finite."""
        assert logs is not None
        if not logs["skipped"]:
            self._in_a_row = 0
            return
        self._in_a_row += 1
        self.progress.skipped += 1
        progress = self.progress
        say(f"step {progress.step:,}: loss or gradient is not finite; the step was skipped")
        if self._in_a_row == MAX_SKIPPED:
            raise UserError(
                f"step {progress.step:,} (epoch {progress.epoch}, batch {progress.batch}): loss or "
                f"gradient was not finite {MAX_SKIPPED} times in a row; the last checkpoint is "
                "sound: begin with it in another --run_dir, by training.init_from, with a lower "
                "training.learning_rate_scale or with training.clip_norm"
            )


class Signals(keras.callbacks.Callback):
    """Ctrl-C and SIGTERM end the training after the current step; a second one ends it at once."""

    caught: int | None = None

    def on_train_begin(self, logs: Logs = None) -> None:
        """Starts to listen."""
        self._before = {number: signal.signal(number, self._note) for number in _ENDING}

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Stops if a signal came."""
        if self.caught is not None:
            self.model.request_stop()

    def on_train_end(self, logs: Logs = None) -> None:
        """Stops listening."""
        self._forget()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.caught = number
        self._forget()

    def _forget(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


_ENDING = (signal.SIGINT, signal.SIGTERM)
