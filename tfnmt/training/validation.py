"""Validation: the weights of the moment translate the validation text; the best ones are kept."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tfnmt.errors import UserError
from tfnmt.model.transformer import Transformer
from tfnmt.progress import say
from tfnmt.runs.run import Run
from tfnmt.training.checkpoints import Progress, save_weights
from tfnmt.training.tensorboard import write_validation

Logs = dict[str, float] | None


class Validation(NamedTuple):
    """What came of a validation."""

    bleu: float
    samples: list[tuple[str, str, str]]  # (source, translation, reference)
    picture: bytes  # PNG: attention in a sentence that is always the same


Evaluate = Callable[[], Validation]


class Judged(NamedTuple):
    """What a training is judged by: in float32 and on one device, as it will be served."""

    transformer: Transformer  # which the weights are written to
    evaluate: Evaluate  # translates with that Transformer


def within_memory(evaluate: Evaluate) -> Evaluate:
    """Turns the want of memory into a line of its own: another batch would not help."""

    def evaluated() -> Validation:
        try:
            return evaluate()
        except (tf.errors.ResourceExhaustedError, MemoryError) as error:
            raise UserError(
                "out of memory while the validation text was translated; give the training more "
                "memory, or in another --run_dir a lower decoding.beam_size or "
                "decoding.max_source_length"
            ) from error

    return evaluated


class Validator(keras.callbacks.Callback):
    """Translates the validation text every `validation_steps` and keeps the best weights."""

    def __init__(self, judged: Judged, writer: Any, run: Run, progress: Progress) -> None:
        super().__init__()
        self.judged = judged
        self.writer = writer
        self.run = run
        self.progress = progress

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Validates when it is time."""
        if self.progress.step % self.model.config.validation_steps == 0:
            self.validate()

    def validate(self) -> None:
        """Scores the weights of the moment, or their moving average."""
        began = time.monotonic()
        progress = self.progress
        self.model.write_weights(self.judged.transformer)
        result = self.judged.evaluate()
        self.run.append_validation(progress.step, result.bleu)
        say(
            f"step {progress.step:,}, epoch {progress.epoch}, {progress.tokens:,} target tokens, "
            f"{progress.seconds / 60:.1f} min: val BLEU {result.bleu:.2f} "
            f"({time.monotonic() - began:.0f} s)"
        )
        write_validation(self.writer, progress.step, result.bleu, result.samples, result.picture)
        progress.worse += 1
        if result.bleu > progress.best_bleu:
            progress.best_bleu = result.bleu
            progress.worse = 0
            save_weights(self.run.best, self.judged.transformer, progress.step)
