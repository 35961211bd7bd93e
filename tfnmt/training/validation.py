"""Validation during training: translates the validation set and keeps the best weights."""

import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tfnmt.errors import UserError
from tfnmt.model.transformer import Transformer
from tfnmt.progress import log
from tfnmt.runs.run import Run
from tfnmt.training.checkpoints import Progress, save_weights
from tfnmt.training.tensorboard import write_validation

Logs = dict[str, float] | None


class Validation(NamedTuple):
    """The results of a validation."""

    bleu: float  # the mean over the directions
    samples: list[tuple[str, str, str]]  # (source, translation, reference)
    figure: bytes  # PNG: attention weights of a sentence pair, the same in each validation
    directions: Mapping[str, float] = MappingProxyType({})  # BLEU of each, if several
    loss: float = 0.0  # cross-entropy of a reference token, without label smoothing

    @property
    def summary(self) -> str:
        """Return BLEU, and that of each direction, as text."""
        each = ", ".join(f"{name} {bleu:.2f}" for name, bleu in self.directions.items())
        return f"{self.bleu:.2f} (the mean of {each})" if each else f"{self.bleu:.2f}"


Evaluate = Callable[[], Validation]


class EvaluationModel(NamedTuple):
    """The model that is evaluated: in float32 and on one device, as it will be served."""

    transformer: Transformer  # receives the weights
    evaluate: Evaluate  # translates with that Transformer


def report_validation_memory(evaluate: Evaluate) -> Evaluate:
    """Convert out-of-memory errors of a validation into a one-line UserError.

    The error of training would recommend a smaller batch, which does not help here.
    """

    def evaluate_and_report() -> Validation:
        try:
            return evaluate()
        except (tf.errors.ResourceExhaustedError, MemoryError) as error:
            raise UserError(
                "out of memory while translating the validation set; provide more memory, or start "
                "another --run_dir with a lower decoding.beam_size or decoding.max_source_length"
            ) from error

    return evaluate_and_report


class Validator(keras.callbacks.Callback):
    """Translates the validation set every `validation_steps` and keeps the best weights."""

    def __init__(
        self, evaluation_model: EvaluationModel, writer: Any, run: Run, progress: Progress
    ) -> None:
        super().__init__()
        self.evaluation_model = evaluation_model
        self.writer = writer
        self.run = run
        self.progress = progress

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Validate when it is due."""
        if self.progress.step % self.model.config.validation_steps == 0:
            self.validate()

    def validate(self) -> None:
        """Evaluate the current weights, or their moving averages if there are any."""
        started = time.monotonic()
        progress = self.progress
        self.model.write_weights(self.evaluation_model.transformer)
        result = self.evaluation_model.evaluate()
        self.run.append_validation(progress.step, result.bleu, result.directions)
        log(
            f"step {progress.step:,}, epoch {progress.epoch}, {progress.tokens:,} target tokens, "
            f"{progress.seconds / 60:.1f} min: val BLEU {result.summary} "
            f"({time.monotonic() - started:.0f} s)"
        )
        scores = {"val/bleu": result.bleu, "val/loss": result.loss}
        scores |= {f"val/bleu_{name}": bleu for name, bleu in result.directions.items()}
        write_validation(self.writer, progress.step, scores, result.samples, result.figure)
        progress.worse += 1
        if result.bleu > progress.best_bleu:
            progress.best_bleu = result.bleu
            progress.worse = 0
            save_weights(self.run.best, self.evaluation_model.transformer, progress.step)
