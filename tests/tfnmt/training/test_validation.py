"""Validation during training: which weights are kept, and its errors."""

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tfnmt.config import ModelConfig, TrainingConfig
from tfnmt.errors import UserError
from tfnmt.model.transformer import Transformer
from tfnmt.runs.checkpoints import WEIGHTS
from tfnmt.runs.run import Run
from tfnmt.training.checkpoints import Progress
from tfnmt.training.trainer import Trainer
from tfnmt.training.validation import (
    EvaluationModel,
    Validation,
    Validator,
    report_validation_memory,
)

FIGURE = tf.io.encode_png(tf.zeros([2, 2, 3], tf.uint8)).numpy()


@pytest.mark.parametrize(
    ("scores", "best", "worse"),
    [
        ([0.0], 1, 0),
        ([10.0, 30.0, 20.0, 25.0], 2, 2),
        ([10.0, 10.0], 1, 1),
        ([10.0, 9.0, 11.0], 3, 0),
    ],
)
def test_validator_keeps_the_best_weights_and_counts_worse_validations(
    small_config: ModelConfig, tmp_path: Path, scores: list[float], best: int, worse: int
) -> None:
    """All weights of a step have the number of the step as value."""
    run, progress, remaining = Run(tmp_path), Progress(), iter(scores)
    evaluation_model = EvaluationModel(
        Transformer(small_config, 50), lambda: Validation(next(remaining), [], FIGURE)
    )
    validator = Validator(evaluation_model, tf.summary.create_noop_writer(), run, progress)
    trainer = Trainer(Transformer(small_config, 50), TrainingConfig(validation_steps=1))
    validator.set_model(trainer)
    for progress.step in range(1, len(scores) + 1):
        for weight in trainer.transformer.weights:
            weight.assign(tf.fill(weight.shape, float(progress.step)))
        validator.on_train_batch_end(progress.step)

    lines = (tmp_path / "validations.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"step": step, "bleu": score} for step, score in enumerate(scores, 1)
    ]
    assert (progress.best_bleu, progress.worse) == (max(scores), worse)
    (kept,) = run.best.all()
    assert int(kept.name) == best
    evaluation_model.transformer.load_weights(kept / WEIGHTS)
    for weight in evaluation_model.transformer.weights:
        np.testing.assert_array_equal(weight.numpy(), best)


def test_validator_records_each_direction_and_keeps_the_best_mean(
    small_config: ModelConfig, tmp_path: Path
) -> None:
    run, progress = Run(tmp_path), Progress()
    results = iter([{"en-de": 10.0, "de-en": 20.0}, {"en-de": 24.0, "de-en": 5.0}])

    def evaluate() -> Validation:
        scores = next(results)
        return Validation(sum(scores.values()) / 2, [], FIGURE, scores)

    writer = tf.summary.create_file_writer(str(run.logs))
    validator = Validator(
        EvaluationModel(Transformer(small_config, 50), evaluate), writer, run, progress
    )
    validator.set_model(Trainer(Transformer(small_config, 50), TrainingConfig(validation_steps=1)))
    for progress.step in (1, 2):
        validator.on_train_batch_end(progress.step)
    writer.close()
    lines = (tmp_path / "validations.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"step": 1, "bleu": 15.0, "directions": {"en-de": 10.0, "de-en": 20.0}},
        {"step": 2, "bleu": 14.5, "directions": {"en-de": 24.0, "de-en": 5.0}},
    ]
    assert run.validations() == {1: 15.0, 2: 14.5}
    assert [int(path.name) for path in run.best.all()] == [1]
    (log,) = run.logs.glob("events*")
    assert all(
        tag in log.read_bytes() for tag in (b"val/bleu_en-de", b"val/bleu_de-en", b"val/loss")
    )


def test_out_of_memory_during_validation_recommends_decoding_settings() -> None:
    def evaluate() -> Validation:
        raise tf.errors.ResourceExhaustedError(None, None, "")

    with pytest.raises(UserError, match=r"^out of memory .*validation set.* decoding\.beam_size"):
        report_validation_memory(evaluate)()
