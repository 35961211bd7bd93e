"""A training run: from random weights or the last checkpoint to the averaged model."""

import json
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
from tfnmt.model.transformer import Transformer
from tfnmt.progress import log
from tfnmt.runs.checkpoints import is_complete
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
    report_lost_worker,
    wait_for_workers,
)
from tfnmt.training.initialization import initialize_from_run
from tfnmt.training.trainer import Trainer, make_trainer
from tfnmt.training.validation import (
    Evaluate,
    EvaluationModel,
    Validator,
    report_validation_memory,
)

MakeEvaluate = Callable[[Transformer], Evaluate]
"""Builds the validation function of a Transformer."""

ENDLESS = 2**31
"""Steps of a training run without max_steps and max_epochs."""


@dataclass(frozen=True)
class Training:
    """The parts of a training run."""

    config: Config
    prepared: Prepared
    plan: Plan
    run: Run
    make_evaluate: MakeEvaluate
    profile: bool = False  # profile some steps

    @cached_property
    def evaluation_model(self) -> EvaluationModel:
        """Return the model that is evaluated. Built once, because tracing takes seconds.

        It has float32 weights, whatever the precision of training: this sets Keras' dtype policy.
        """
        keras.config.set_dtype_policy("float32")
        transformer = Transformer(self.config.model, self.prepared.tokenizer.vocab_size)
        evaluate = report_validation_memory(self.make_evaluate(transformer))
        return EvaluationModel(transformer, evaluate)


def train(training: Training) -> int | None:
    """Train until the configured end.

    Args:
        training: The parts of the training run.

    Returns:
        The number of the signal that stopped the run earlier, if any.

    Raises:
        UserError: Memory ran out, another worker was lost, or the loss was not finite repeatedly.
    """
    config, run, plan = training.config, training.run, training.plan
    strategy = make_strategy()
    trainer = make_trainer(config, training.prepared.tokenizer.vocab_size, strategy)
    with strategy.scope():
        progress = restore_or_initialize(run, trainer, config)
    _log_start(training, trainer.transformer, progress, strategy)

    signals = callbacks.Signals()
    if not has_ended(config.training, plan, progress):
        writer = tf.summary.create_file_writer(str(run.logs)) if is_chief() else None
        batches = Batches(plan)
        with report_lost_worker(), _report_out_of_memory(training):
            trainer.fit(
                distribute_batches(strategy, batches, progress.step),
                steps_per_epoch=last_step(config.training, plan) - progress.step,
                shuffle=False,
                verbose=0,
                callbacks=_callbacks(training, batches, progress, writer, signals),
            )
            wait_for_workers(strategy)  # the chief has saved
        if writer is not None:
            writer.close()
    if signals.caught is None and is_chief():
        _finish(training, trainer, progress)
    return signals.caught


@contextmanager
def _report_out_of_memory(training: Training) -> Iterator[None]:
    """Convert out-of-memory errors into a one-line UserError."""
    try:
        yield
    except (tf.errors.ResourceExhaustedError, MemoryError) as error:
        vocab_size = training.prepared.tokenizer.vocab_size
        raise out_of_memory(training.config, vocab_size) from error


def restore_or_initialize(run: Run, trainer: Trainer, config: Config) -> Progress:
    """Restore the last checkpoint. If there is none, load the weights of `training.init_from`.

    Args:
        run: The run folder.
        trainer: The trainer whose weights and optimizer state are set.
        config: The configuration of the run.

    Returns:
        The progress that the trainer has now.
    """
    progress = restore_checkpoint(run, trainer)
    if progress.step == 0 and config.training.init_from is not None:
        initialize_from_run(trainer.transformer, config)
    return progress


def last_step(config: TrainingConfig, plan: Plan) -> int:
    """Return the step at which training ends, unless another limit is reached first."""
    return min([ENDLESS, *_last_steps(config, plan).values()])


def _last_steps(config: TrainingConfig, plan: Plan) -> dict[str, int]:
    """Return the last step according to max_steps and max_epochs, as far as they are set."""
    last = {}
    if config.max_steps is not None:
        last["max_steps"] = config.max_steps
    if config.max_epochs is not None:
        last["max_epochs"] = config.max_epochs * plan.batches_per_epoch
    return last


def reached_ends(config: TrainingConfig, plan: Plan, progress: Progress) -> list[str]:
    """Return the keys of the limits that a training run has reached; none while it continues."""
    steps = [key for key, step in _last_steps(config, plan).items() if progress.step >= step]
    return steps + progress.reached_limits(config)


def has_ended(config: TrainingConfig, plan: Plan, progress: Progress) -> bool:
    """Return whether any limit of the training run is reached."""
    return bool(reached_ends(config, plan, progress))


def _callbacks(
    training: Training,
    batches: Batches,
    progress: Progress,
    writer: Any,
    signals: callbacks.Signals,
) -> list[keras.callbacks.Callback]:
    """Return the callbacks of this worker, in the order in which they must run."""
    return [
        callbacks.Clock(progress, training.plan),
        callbacks.Guard(training.run, progress),
        *(_chief_callbacks(training, batches, progress, writer) if is_chief() else []),
        callbacks.Limits(training.config.training, progress),
        signals,
    ]


def _chief_callbacks(
    training: Training, batches: Batches, progress: Progress, writer: Any
) -> list[keras.callbacks.Callback]:
    """Return the callbacks that show progress, validate and save."""
    config, run = training.config.training, training.run
    last = last_step(config, training.plan)
    end = last if last < ENDLESS else None
    optional: list[keras.callbacks.Callback] = []
    if training.profile:
        optional.append(tensorboard.Profiler(run))
    if config.histogram_steps is not None:
        steps = config.histogram_steps
        optional.append(tensorboard.Histograms(writer, progress, batches, steps))
    return [
        callbacks.ProgressBar(progress, end),
        callbacks.Forecast(progress, config, training.plan, end),
        tensorboard.Curves(writer, progress, config.log_steps),
        *optional,
        Validator(training.evaluation_model, writer, run, progress),
        callbacks.Checkpointer(run, config, progress),
    ]


def _log_start(
    training: Training,
    transformer: Transformer,
    progress: Progress,
    strategy: tf.distribute.Strategy,
) -> None:
    plan = training.plan
    left_out = len(training.prepared.source) - len(plan.rows)
    if left_out:
        log(f"data.max_length: {left_out:,} longer pairs are left out")
    if training.prepared.directions:
        log(f"pairs per epoch: {plan.sampled.summary()}")
    log(
        f"{transformer.count_params():,} parameters, {len(plan.rows):,} pairs, "
        f"{plan.batches_per_epoch:,} batches per epoch, "
        f"{strategy.num_replicas_in_sync} {device_kind()} device(s)"
    )
    if not progress.step:
        return
    config, path = training.config.training, training.run.path
    if ends := reached_ends(config, plan, progress):
        settings = " and ".join(f"training.{key}={getattr(config, key)}" for key in ends)
        log(
            f"{path}: {settings} has already been reached at step {progress.step:,}; there is no "
            "further step, and the averaged checkpoint is written again"
        )
    else:
        log(f"{path}: resuming after step {progress.step:,}")


def _finish(training: Training, trainer: Trainer, progress: Progress) -> None:
    """Average the weights, evaluate the average, and mark the run as finished."""
    run, (transformer, evaluate) = training.run, training.evaluation_model
    averaged: list[Path] = []
    kind = "the moving average of the weights"
    if trainer.optimizer.moving_averages:
        trainer.write_weights(transformer)
    else:
        averaged = _average_checkpoints(training)
        kind = f"the average of the last {len(averaged)} checkpoints"
    save_weights(run.averaged, transformer, progress.step, averaged)
    result = evaluate()
    tensorboard.write_result(run, training.config, progress.step, result.bleu)
    log(f"{kind}: val BLEU {result.summary}")
    if averaged and result.bleu < progress.best_bleu:
        log(
            f"this is below the best checkpoint ({progress.best_bleu:.2f}); train for longer, or "
            f"use that checkpoint: python -m tfnmt.average --model={run.path} --best=1"
        )
    summary = {**asdict(progress), "averaged": len(averaged), "averaged_bleu": result.bleu}
    if result.directions:
        summary["averaged_bleu_of_directions"] = dict(result.directions)
    write_atomically(run.summary_path, (json.dumps(summary, indent=1) + "\n").encode())


def _average_checkpoints(training: Training) -> list[Path]:
    """Average the last complete checkpoints into the evaluation model; returns their folders."""
    checkpoints = [path for path in training.run.checkpoints().all() if is_complete(path)]
    checkpoints = checkpoints[-training.config.training.average_last :]
    average_weights(checkpoints, training.evaluation_model.transformer)
    return checkpoints
