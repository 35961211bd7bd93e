"""A whole training: from random weights, or from where it stopped, to the averaged model."""

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from tfnmt.config import Config, TrainingConfig
from tfnmt.data.batching.batches import Batches
from tfnmt.data.batching.plan import Plan
from tfnmt.data.preparation.prepared import Prepared
from tfnmt.errors import UsageError
from tfnmt.model.transformer import Transformer
from tfnmt.progress import say
from tfnmt.runs.checkpoints import check_weights, snapshot_is_whole, still_there
from tfnmt.runs.run import Run
from tfnmt.runtime.cluster import is_chief
from tfnmt.runtime.files import write_atomically
from tfnmt.training import callbacks, tensorboard
from tfnmt.training.batch_size import out_of_memory
from tfnmt.training.checkpoints import (
    Progress,
    average_weights,
    restore_checkpoint,
    save_weights,
)
from tfnmt.training.distribution import (
    device_kind,
    distribute_batches,
    make_strategy,
    together,
)
from tfnmt.training.trainer import Trainer, make_trainer
from tfnmt.training.validation import Evaluate, Judged, Validator, within_memory

MakeEvaluate = Callable[[Transformer], Evaluate]
"""Given the Transformer in training, something that validates it: all that training knows."""

ENDLESS = 2**31
"""Steps of a training that only the clock ends."""


@dataclass(frozen=True)
class Training:
    """What a training works with."""

    config: Config
    prepared: Prepared
    plan: Plan
    run: Run
    make_evaluate: MakeEvaluate
    profile: bool = False  # some of the updates

    @cached_property
    def judged(self) -> Judged:
        """What the training is judged by; made once, for its graph takes seconds."""
        keras.config.set_dtype_policy("float32")
        transformer = Transformer(self.config.model, self.prepared.tokenizer.vocab_size)
        return Judged(transformer, within_memory(self.make_evaluate(transformer)))


def train(training: Training) -> int | None:
    """Trains until the configuration's end; returns the signal that came before it, if one did."""
    config, run = training.config, training.run
    strategy = make_strategy()
    trainer = make_trainer(config, training.prepared.tokenizer.vocab_size, strategy)
    with strategy.scope():
        progress = begin(run, trainer, config)
    _announce(training, trainer.transformer, progress, strategy)

    with together(), _enough_memory(training):
        caught = _fit(training, trainer, progress, strategy)
    if caught is None and is_chief():
        if not is_over(config.training, training.plan, progress):
            return signal.SIGTERM  # which another worker was sent
        _finish(training, trainer, progress)
    return caught


@contextmanager
def _enough_memory(training: Training) -> Iterator[None]:
    """Turns the want of memory into a line."""
    try:
        yield
    except (tf.errors.ResourceExhaustedError, MemoryError) as error:
        vocab_size = training.prepared.tokenizer.vocab_size
        raise out_of_memory(training.config, vocab_size) from error


def begin(run: Run, trainer: Trainer, config: Config) -> Progress:
    """Goes on from the last checkpoint, or else begins, perhaps with another run's weights."""
    progress = restore_checkpoint(run, trainer)
    if progress.step == 0 and config.training.init_from is not None:
        _begin_with(trainer.transformer, config, Run(Path(config.training.init_from)))
    return progress


def _begin_with(transformer: Transformer, config: Config, run: Run) -> None:
    """Takes over the weights of a run, whose Transformer must have the same shape."""
    theirs = run.config().model.model_dump()
    differing = [key for key, value in config.model.model_dump().items() if value != theirs[key]]
    shapes = [f"model.{key}" for key in differing if "dropout" not in key]
    if shapes:
        raise UsageError(
            f"training.init_from: {run.path} has another {', '.join(shapes)}; take over its values"
        )
    weights = run.weights()
    check_weights(weights)
    with still_there(weights):
        transformer.load_weights(weights)
    say(f"begins with {weights.relative_to(run.path).parent} of {run.path}")


def last_step(config: TrainingConfig, plan: Plan) -> int:
    """The update that the configuration ends at, unless the clock does first."""
    limits = [ENDLESS]
    if config.max_steps is not None:
        limits.append(config.max_steps)
    if config.max_epochs is not None:
        limits.append(config.max_epochs * plan.batches_per_epoch)
    return min(limits)


def is_over(config: TrainingConfig, plan: Plan, progress: Progress) -> bool:
    """Whether the training has reached any of its ends."""
    return progress.step >= last_step(config, plan) or progress.is_over(config)


def _fit(
    training: Training, trainer: Trainer, progress: Progress, strategy: tf.distribute.Strategy
) -> int | None:
    """Runs `fit` from the progress to the end; returns the signal that ended it, if one did."""
    config, plan, run = training.config, training.plan, training.run
    if is_over(config.training, plan, progress):
        return None
    end = last_step(config.training, plan)
    writer = tf.summary.create_file_writer(str(run.logs)) if is_chief() else None
    signals = callbacks.Signals()
    batches = Batches(plan)
    trainer.fit(
        distribute_batches(strategy, batches, progress.step),
        steps_per_epoch=end - progress.step,
        shuffle=False,
        verbose=0,
        callbacks=[
            callbacks.Clock(progress, plan),
            callbacks.Guard(progress),
            *(_writing(training, batches, progress, writer) if is_chief() else []),
            callbacks.Limits(config.training, progress),
            signals,
        ],
    )
    if writer is not None:
        writer.close()
    return signals.caught


def _writing(
    training: Training, batches: Batches, progress: Progress, writer: Any
) -> list[keras.callbacks.Callback]:
    """What only one worker does: it shows, validates and saves."""
    config, run = training.config.training, training.run
    last = last_step(config, training.plan)
    end = last if last < ENDLESS else None
    shown: list[keras.callbacks.Callback] = []
    if training.profile:
        shown.append(tensorboard.Profiler(run))
    if config.histogram_steps is not None:
        shown.append(tensorboard.Histograms(writer, progress, batches, config.histogram_steps))
    return [
        callbacks.Bar(progress, end),
        callbacks.Forecast(progress, config, training.plan, end),
        tensorboard.Curves(writer, progress, config.log_steps),
        *shown,
        Validator(training.judged, writer, run, progress),
        callbacks.Checkpointer(run, config, progress),
    ]


def _announce(
    training: Training,
    transformer: Transformer,
    progress: Progress,
    strategy: tf.distribute.Strategy,
) -> None:
    plan = training.plan
    left_out = len(training.prepared.source) - len(plan.rows)
    if left_out:
        say(f"{left_out:,} pairs are longer than data.max_length and are left out")
    say(
        f"{transformer.count_params():,} parameters, {len(plan.rows):,} pairs, "
        f"{plan.batches_per_epoch:,} batches a pass, "
        f"{strategy.num_replicas_in_sync} {device_kind()} device(s)"
    )
    if progress.step:
        say(f"going on after step {progress.step:,} of {training.run.path}")


def _finish(training: Training, trainer: Trainer, progress: Progress) -> None:
    """Averages, scores the average, and marks the run as finished."""
    run, (transformer, evaluate) = training.run, training.judged
    averaged = 0  # checkpoints
    kind = "the moving average of the weights"
    if trainer.optimizer.moving_averages:
        trainer.write_weights(transformer)
    else:
        averaged = _average_checkpoints(training)
        kind = f"the average of the last {averaged} checkpoints"
    save_weights(run.averaged, transformer, progress.step)
    bleu = evaluate().bleu
    tensorboard.write_result(run, training.config, progress.step, bleu)
    say(f"{kind}: val BLEU {bleu:.2f}")
    summary = {**asdict(progress), "averaged": averaged, "averaged_bleu": bleu}
    write_atomically(run.summary_path, (json.dumps(summary, indent=1) + "\n").encode())


def _average_checkpoints(training: Training) -> int:
    """Gives the judged model the mean of the last ones that are whole; returns how many."""
    snapshots = [path for path in training.run.checkpoints().all() if snapshot_is_whole(path)]
    snapshots = snapshots[-training.config.training.average_last :]
    average_weights(snapshots, training.judged[0])
    return len(snapshots)
