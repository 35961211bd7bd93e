"""TensorBoard logs: curves, histograms, a profile, translations and attention."""

from collections.abc import Mapping
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
"""Steps after the start that are profiled. The first steps trace graphs and warm up."""


class Curves(keras.callbacks.Callback):
    """Writes scalars every `log_steps`. Keras' own callback knows neither tokens nor steps."""

    def __init__(self, writer: Any, progress: Progress, log_steps: int) -> None:
        super().__init__()
        self.writer = writer
        self.progress = progress
        self.log_steps = log_steps
        self._since = Progress(tokens=progress.tokens, busy=progress.busy)

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Write a point of each curve."""
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
    """Writes histograms of all weights, and of their gradients in the next step, every `steps`.

    The gradients are computed separately, for the first device's part of the next batch, so that
    the training step does not have to return them.
    """

    def __init__(self, writer: Any, progress: Progress, batches: Batches, steps: int) -> None:
        super().__init__()
        self.writer = writer
        self.progress = progress
        self.batches = batches
        self.steps = steps

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Write histograms when they are due."""
        if self.progress.step % self.steps == 0:
            self._write(self.progress.step)

    def _write(self, step: int) -> None:
        # The gradients of the whole batch might not fit into the memory of one device.
        replicas = self.model.distribute_strategy.num_replicas_in_sync
        batch, *_ = self.batches.shards(step, replicas)
        gradients = self.model.gradients(((batch.source, batch.target_in), batch.target_out))
        weights = self.model.transformer.trainable_variables
        with self.writer.as_default(step):
            for weight, gradient in zip(weights, gradients, strict=True):
                tf.summary.histogram(f"weights/{weight.path}", weight.value)
                tf.summary.histogram(f"gradients/{weight.path}", gradient)


class Profiler(keras.callbacks.Callback):
    """Profiles the steps of PROFILED_STEPS for TensorBoard's profile plugin."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self._active = False

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Start before the first profiled step."""
        if batch == PROFILED_STEPS.start:
            tf.profiler.experimental.start(str(self.run.logs))
            self._active = True

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Stop after the last profiled step."""
        if batch == PROFILED_STEPS.stop - 1:
            self._stop()

    def on_train_end(self, logs: Logs = None) -> None:
        """Save the profile of a training run that ends within the profiled steps."""
        if self._active:
            self._stop()

    def _stop(self) -> None:
        tf.profiler.experimental.stop()
        self._active = False


def write_validation(
    writer: Any,
    step: int,
    scores: Mapping[str, float],
    samples: list[tuple[str, str, str]],
    figure: bytes,
) -> None:
    """Write the results of a validation.

    Args:
        writer: A summary writer.
        step: The step of the validated weights.
        scores: BLEU and loss on the validation set by the name of their curve.
        samples: Some (source, translation, reference).
        figure: A PNG image of attention weights.
    """
    with writer.as_default(step):
        for name, score in scores.items():
            tf.summary.scalar(name, score)
        tf.summary.text("val/translations", _markdown_table(samples))
        tf.summary.image("val/attention", tf.io.decode_png(figure, channels=3)[None])


def write_result(run: Run, config: Config, step: int, bleu: float) -> None:
    """Write the configuration and the final BLEU, for TensorBoard's comparison of runs.

    Args:
        run: The run folder.
        config: The configuration of the run.
        step: The last step.
        bleu: BLEU of the averaged weights on the validation set.
    """
    keys = {key: _scalar(value) for key, value in flatten(config).items()}
    writer = tf.summary.create_file_writer(str(run.logs))
    with writer.as_default(step):
        hparams.hparams(keys, trial_id=run.path.name)
        tf.summary.scalar("val/final_bleu", bleu)
    writer.close()


def _scalar(value: Any) -> Any:
    """Convert null and lists, which TensorBoard cannot show, to strings."""
    return value if isinstance(value, bool | int | float | str) else str(value)


def _markdown_table(samples: list[tuple[str, str, str]]) -> str:
    rows = [" | ".join(text.replace("|", "\\|") for text in sample) for sample in samples]
    return "\n".join(["source | translation | reference", "---|---|---", *rows])
