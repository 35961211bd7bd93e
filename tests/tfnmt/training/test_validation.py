"""What validation keeps of a training."""

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
from tfnmt.training.validation import Judged, Validation, Validator, within_memory

PICTURE = tf.io.encode_png(tf.zeros([2, 2, 3], tf.uint8)).numpy()


@pytest.mark.parametrize(
    ("scores", "best", "worse"),
    [
        ([0.0], 1, 0),
        ([10.0, 30.0, 20.0, 25.0], 2, 2),
        ([10.0, 10.0], 1, 1),
        ([10.0, 9.0, 11.0], 3, 0),
    ],
)
def test_the_best_weights_are_kept_and_the_worse_ones_counted(
    small_config: ModelConfig, tmp_path: Path, scores: list[float], best: int, worse: int
) -> None:
    """The weights of a step are all the number of the step."""
    run, progress, coming = Run(tmp_path), Progress(), iter(scores)
    judged = Judged(Transformer(small_config, 50), lambda: Validation(next(coming), [], PICTURE))
    validator = Validator(judged, tf.summary.create_noop_writer(), run, progress)
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
    judged.transformer.load_weights(kept / WEIGHTS)
    for weight in judged.transformer.weights:
        np.testing.assert_array_equal(weight.numpy(), best)


def test_the_want_of_memory_is_told_of_the_search_not_of_the_batches() -> None:
    def evaluate() -> Validation:
        raise tf.errors.ResourceExhaustedError(None, None, "")

    with pytest.raises(UserError, match=r"^out of memory while the validation text was translated"):
        within_memory(evaluate)()
