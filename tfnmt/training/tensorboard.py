"""TensorBoard: curves, histograms and a profile of a training, its translations and attention."""

from typing import Any

import keras
import tensorflow as tf
from tensorboard.plugins.hparams import api as hparams

from tfnmt.config import Config, flatten
from tfnmt.data.batching.batches import Batches
from tfnmt.runs.run import Run
from tfnmt.training.checkpoints import Progress
from tfnmt.training.loss import perplexity

Logs = dict[str, float] | None

PROFILED_STEPS = range(10, 15)
"""Updates of a start that are profiled: the first ones trace and warm up."""


class Curves(keras.callbacks.Callback):
    """Scalars of every `log_steps`-th update; Keras' callback knows neither tokens nor steps."""

    def __init__(self, writer: Any, progress: Progress, log_steps: int) -> None:
        super().__init__()
        self.writer = writer
        self.progress = progress
        self.log_steps = log_steps
        self._since = Progress(tokens=progress.tokens, busy=progress.busy)

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Writes a point of each curve."""
        assert logs is not None
        progress = self.progress
        if progress.step % self.log_steps:
            return
        seconds = progress.busy - self._since.busy
        points = {
            "train/loss": logs["loss"],
            "train/perplexity": perplexity(logs["cross_entropy"]),
            "train/token_accuracy": logs["accuracy"],
            "train/gradient_norm": logs["gradient_norm"],
            "train/learning_rate": logs["learning_rate"],
            "train/padding_share": logs["padding"],
            "train/skipped_steps": progress.skipped,
            "train/target_tokens_per_second": (progress.tokens - self._since.tokens) / seconds,
        }
        self._since = Progress(tokens=progress.tokens, busy=progress.busy)
        with self.writer.as_default(progress.step):
            for name, value in points.items():
                tf.summary.scalar(name, value)


class Histograms(keras.callbacks.Callback):
    """Every weight after every `histogram_steps`-th update, and the gradient that it meets next.

    The gradient is taken once more, of the next update's whole batch: the updates themselves need
    not carry it out.
    """

    def __init__(self, writer: Any, progress: Progress, batches: Batches, steps: int) -> None:
        super().__init__()
        self.writer = writer
        self.progress = progress
        self.batches = batches
        self.steps = steps

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Writes them when it is time."""
        if self.progress.step % self.steps == 0:
            self._write(self.progress.step)

    def _write(self, step: int) -> None:
        (batch,) = self.batches.shards(step, replicas=1)
        gradients = self.model.gradients(((batch.source, batch.target_in), batch.target_out))
        weights = self.model.transformer.trainable_variables
        with self.writer.as_default(step):
            for weight, gradient in zip(weights, gradients, strict=True):
                tf.summary.histogram(f"weights/{weight.path}", weight.value)
                tf.summary.histogram(f"gradients/{weight.path}", gradient)


class Profiler(keras.callbacks.Callback):
    """A profile of some updates, for TensorBoard's profile plugin."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self._begun = False

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Begins at the first of them."""
        if batch == PROFILED_STEPS.start:
            tf.profiler.experimental.start(str(self.run.logs))
            self._begun = True

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Ends after the last."""
        if batch == PROFILED_STEPS.stop - 1:
            self._write()

    def on_train_end(self, logs: Logs = None) -> None:
        """Keeps what there is of a training that ended among them."""
        if self._begun:
            self._write()

    def _write(self) -> None:
        tf.profiler.experimental.stop()
        self._begun = False


def write_validation(
    writer: Any, step: int, bleu: float, samples: list[tuple[str, str, str]], picture: bytes
) -> None:
    """A validation: its BLEU, some (source, translation, reference), and a picture as PNG."""
    with writer.as_default(step):
        tf.summary.scalar("val/bleu", bleu)
        tf.summary.text("val/translations", _as_table(samples))
        tf.summary.image("val/attention", tf.io.decode_png(picture, channels=3)[None])


def write_result(run: Run, config: Config, step: int, bleu: float) -> None:
    """The configuration with the BLEU it came to, for the page that compares runs."""
    keys = {key: _plain(value) for key, value in flatten(config).items()}
    writer = tf.summary.create_file_writer(str(run.logs))
    with writer.as_default(step):
        hparams.hparams(keys, trial_id=run.path.name)
        tf.summary.scalar("val/final_bleu", bleu)
    writer.close()


def _plain(value: Any) -> Any:
    """A value as the page can show it: no null and no list."""
    return value if isinstance(value, bool | int | float | str) else str(value)


def _as_table(samples: list[tuple[str, str, str]]) -> str:
    """Markdown, which TensorBoard renders."""
    rows = [" | ".join(text.replace("|", "\\|") for text in sample) for sample in samples]
    return "\n".join(["source | translation | reference", "---|---|---", *rows])
