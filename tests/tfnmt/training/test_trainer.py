"""The update itself, and that devices do not change it."""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfnmt.config import ModelConfig, TrainingConfig
from tfnmt.model.transformer import Transformer
from tfnmt.training.loss import smoothed_cross_entropy
from tfnmt.training.schedule import NoamSchedule
from tfnmt.training.trainer import Trainer, make_optimizer

SOURCE = np.array([[4, 5, 2], [6, 2, 0]], "int32")
TARGET_IN = np.array([[1, 7, 8, 9], [1, 10, 0, 0]], "int32")
TARGET_OUT = np.array([[7, 8, 9, 2], [10, 2, 0, 0]], "int32")
BATCH = ((SOURCE, TARGET_IN), TARGET_OUT)


def trainer(lanes: int = 1, **training: Any) -> Trainer:
    keras.utils.set_random_seed(1)
    model = ModelConfig(
        num_encoder_layers=1, num_decoder_layers=1, d_model=16, num_heads=2, d_ff=32,
        dropout=training.pop("dropout", 0.0),
    )  # fmt: skip
    config = TrainingConfig(warmup_steps=10, **training)
    return Trainer(Transformer(model, 12), config, lanes=lanes)


def step(trainer: Trainer, batch: Any = BATCH) -> dict[str, float]:
    if not hasattr(trainer, "update"):  # traced once: that takes seconds
        trainer.update = tf.function(trainer.train_step, autograph=False, reduce_retracing=True)
    logs = trainer.update(tf.nest.map_structure(tf.constant, batch))
    return {name: float(value) for name, value in logs.items()}


def weights(trainer: Trainer) -> list[np.ndarray]:
    return [variable.numpy() for variable in trainer.transformer.variables]


def test_an_update_reports_means_over_the_real_tokens() -> None:
    made = trainer()
    transformer = made.transformer
    memory, mask = transformer.encode(SOURCE)
    sums = smoothed_cross_entropy(
        transformer.decode(TARGET_IN, memory, mask),
        transformer.output_embedding.table,
        TARGET_OUT,
        0.1,
    )
    logs = step(made)
    assert logs["tokens"] == 6
    assert logs["loss"] == pytest.approx(float(sums.loss) / 6, rel=1e-5)
    assert logs["cross_entropy"] == pytest.approx(float(sums.cross_entropy) / 6, rel=1e-5)


def test_updates_lower_the_loss() -> None:
    made = trainer(learning_rate_scale=2.0)
    update = tf.function(made.train_step, autograph=False)
    losses = [float(update(tf.nest.map_structure(tf.constant, BATCH))["loss"]) for _ in range(30)]
    assert losses[-1] < losses[0] / 2


def test_the_gradient_is_that_of_the_mean_over_tokens_not_over_rows() -> None:
    """A row twice in the batch counts twice, and padding rows count nothing."""
    doubled = tf.nest.map_structure(lambda ids: np.concatenate([ids, ids, 0 * ids[:1]]), BATCH)
    once, twice = trainer(), trainer()
    assert step(twice, doubled)["gradient_norm"] == pytest.approx(
        step(once)["gradient_norm"], rel=1e-4
    )


def test_clipping_bounds_the_update_and_leaves_the_reported_norm() -> None:
    free, clipped = trainer(adam_epsilon=1.0), trainer(adam_epsilon=1.0, clip_norm=0.01)
    before = weights(free)
    norms = step(free)["gradient_norm"], step(clipped)["gradient_norm"]

    def moved(trainer: Trainer) -> float:
        changes = [new - old for new, old in zip(weights(trainer), before, strict=True)]
        return float(np.sqrt(sum((change**2).sum() for change in changes)))

    assert norms[0] == pytest.approx(norms[1]) != pytest.approx(0.01)
    # With so large an epsilon, Adam's step is proportional to the gradient.
    assert moved(clipped) / moved(free) == pytest.approx(0.01 / norms[0], rel=0.05)


def test_a_batch_of_padding_alone_changes_no_weight() -> None:
    made = trainer()
    before = weights(made)
    logs = step(made, tf.nest.map_structure(np.zeros_like, BATCH))
    assert logs["tokens"] == logs["loss"] == 0
    for old, new in zip(before, weights(made), strict=True):
        np.testing.assert_array_equal(new, old)


def test_dropout_differs_from_step_to_step_and_repeats_in_a_repeated_run() -> None:
    first, second = trainer(dropout=0.5), trainer(dropout=0.5)
    losses = [(step(made)["loss"], step(made)["loss"]) for made in (first, second)]
    assert losses[0] == losses[1]
    seeds = [first._dropout_seed(tf.distribute.get_replica_context()).numpy().tolist()]
    step(first)
    seeds.append(first._dropout_seed(tf.distribute.get_replica_context()).numpy().tolist())
    assert seeds[0] != seeds[1]


@pytest.mark.parametrize(
    "parted", [{"device_tokens": 4}, {"lanes": 2}, {"lanes": 3}, {"lanes": 2, "device_tokens": 4}]
)
def test_parts_add_up_to_the_whole(parted: dict[str, int]) -> None:
    whole, parts = trainer(clip_norm=0.5), trainer(clip_norm=0.5, **parted)
    for _ in range(5):
        one, other = step(whole), step(parts)
        assert other == pytest.approx(one, rel=1e-5)


def test_lanes_share_all_rows_and_none_is_without() -> None:
    made = trainer(lanes=3)
    for rows in (1, 2, 3, 7):
        ids = np.arange(1, rows + 1, dtype="int32")[:, None]
        shares = [made._share(ids, lane).numpy().ravel().tolist() for lane in range(3)]
        assert sorted(row for share in shares for row in share if row) == [*range(1, rows + 1)]
        assert 1 <= min(map(len, shares)) >= max(map(len, shares)) - 1


@pytest.mark.parametrize("parted", [{"device_tokens": 4}, {"lanes": 2}])
def test_parts_of_a_step_drop_out_differently(parted: dict[str, int]) -> None:
    made = trainer(dropout=0.5, **parted)
    same = tf.nest.map_structure(lambda ids: np.repeat(ids[:1], 2, axis=0), BATCH)
    alone = tf.nest.map_structure(lambda ids: ids[:1], same)
    losses = [float(trainer(dropout=0.5).train_step(alone)["loss"]), step(made, same)["loss"]]
    assert losses[0] != pytest.approx(losses[1], rel=1e-3)


def test_a_step_that_is_not_finite_is_skipped_and_leaves_no_trace() -> None:
    made = trainer()
    step(made)
    table = made.transformer.target_embedding.table
    whole = table.numpy()
    before = [variable.numpy() for variable in (*made.weights, *made.optimizer.variables[1:])]
    table.assign(np.where(np.arange(12)[:, None] == 7, np.nan, whole))
    logs = step(made)
    table.assign(whole)
    after = [variable.numpy() for variable in (*made.weights, *made.optimizer.variables[1:])]
    assert logs["skipped"] == 1
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one, other)
    assert step(made)["skipped"] == 0


def test_the_moving_average_is_that_of_the_weights_and_leaves_them_alone() -> None:
    made = trainer(ema_decay=0.5)
    seen = []
    for _ in range(3):
        step(made)
        seen.append(weights(made))
    expected = [0.25 * a + 0.25 * b + 0.5 * c for a, b, c in zip(*seen, strict=True)]
    other = trainer()
    made.write_weights(other.transformer)
    for one, average in zip(weights(other), expected, strict=True):
        np.testing.assert_allclose(one, average, atol=1e-6)
    for one, other in zip(weights(made), seen[-1], strict=True):
        np.testing.assert_array_equal(one, other)


def test_in_bfloat16_the_weights_stay_float32_and_the_loss_is_about_the_same() -> None:
    exact = step(trainer())["loss"]
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        made = trainer()
        assert made.transformer.compute_dtype == "bfloat16"
        assert {weight.dtype.name for weight in weights(made)} == {"float32"}
        assert step(made)["loss"] == pytest.approx(exact, rel=0.02)
    finally:
        keras.config.set_dtype_policy("float32")


def test_without_moving_averages_the_weights_themselves_are_written() -> None:
    made, other = trainer(), trainer()
    step(made)
    made.write_weights(other.transformer)
    for one, written in zip(weights(made), weights(other), strict=True):
        np.testing.assert_array_equal(one, written)


def test_r_drop_reads_twice_and_without_dropout_changes_nothing() -> None:
    once, twice = trainer(), trainer(r_drop=5.0)
    logs, doubled = step(once), step(twice)
    assert doubled["tokens"] == 2 * logs["tokens"]
    for name in ("loss", "cross_entropy", "accuracy", "padding", "gradient_norm"):
        assert doubled[name] == pytest.approx(logs[name], rel=1e-4)


def test_r_drop_draws_two_dropouts_together() -> None:
    """The loss counts how far the readings are apart; training on it brings them closer."""
    apart = [step(trainer(dropout=0.5, r_drop=alpha))["loss"] for alpha in (1e-6, 1.0, 3.0)]
    assert apart[2] - apart[0] == pytest.approx(3 * (apart[1] - apart[0]), rel=1e-3)
    assert apart[1] > apart[0] + 0.01


def test_updates_are_those_of_keras_adam() -> None:
    config = TrainingConfig(warmup_steps=10)
    ours, theirs = make_optimizer(config, 16), keras.optimizers.Adam(
        NoamSchedule(16, 10, 1.0), beta_1=0.9, beta_2=0.98, epsilon=1e-9
    )  # fmt: skip
    random = np.random.default_rng(0)
    begun = random.standard_normal((3, 4)).astype("float32")
    weights = [keras.Variable(begun), keras.Variable(begun)]
    for optimizer, weight in zip((ours, theirs), weights, strict=True):
        optimizer.build([weight])
    for _ in range(20):
        gradient = tf.constant(random.standard_normal((3, 4)), tf.float32)
        ours.apply_if(tf.constant(True), [gradient])
        theirs.apply([gradient])
        np.testing.assert_allclose(weights[0].numpy(), weights[1].numpy(), atol=1e-6)
    for one, other in zip(ours.variables, theirs.variables, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_update_left_out_changes_neither_weight_nor_moment(value: float) -> None:
    optimizer, weight = make_optimizer(TrainingConfig(), 16), keras.Variable(np.ones(3, "float32"))
    optimizer.build([weight])
    optimizer.apply_if(tf.constant(True), [tf.constant([1.0, -2.0, 3.0])])
    before = [variable.numpy() for variable in (weight, *optimizer.variables[2:])]
    optimizer.apply_if(tf.constant(False), [tf.constant([1.0, value, 3.0])])
    after = [variable.numpy() for variable in (weight, *optimizer.variables[2:])]
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one, other)
    assert int(optimizer.iterations) == 2
