"""A training step and the optimizer."""

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


def make_trainer(streams: int = 1, **training: Any) -> Trainer:
    keras.utils.set_random_seed(1)
    model = ModelConfig(
        num_encoder_layers=1,
        num_decoder_layers=1,
        d_model=16,
        num_heads=2,
        d_ff=32,
        dropout=training.pop("dropout", 0.0),
        attention=training.pop("attention", "standard"),
    )
    config = TrainingConfig(warmup_steps=10, **training)
    return Trainer(Transformer(model, 12), config, streams=streams)


def step(trainer: Trainer, batch: Any = BATCH) -> dict[str, float]:
    """Make one step eagerly, because tracing a graph takes seconds."""
    logs = trainer.train_step(tf.nest.map_structure(tf.constant, batch))
    return {name: float(value) for name, value in logs.items()}


def graph_steps(trainer: Trainer, count: int) -> list[dict[str, float]]:
    """Make some steps in a graph, as `fit` does."""
    graph = tf.function(trainer.train_step, autograph=False, reduce_retracing=True)
    batch = tf.nest.map_structure(tf.constant, BATCH)
    return [{name: float(value) for name, value in graph(batch).items()} for _ in range(count)]


def weights(trainer: Trainer) -> list[np.ndarray]:
    return [variable.numpy() for variable in trainer.transformer.variables]


# --- Gradient and loss ----------------------------------------------------------------------------


def test_step_reports_means_over_the_target_tokens() -> None:
    trainer = make_trainer()
    transformer = trainer.transformer
    memory, mask = transformer.encode(SOURCE)
    sums = smoothed_cross_entropy(
        transformer.decode(TARGET_IN, memory, mask),
        transformer.output_embedding.table,
        TARGET_OUT,
        0.1,
    )
    logs = step(trainer)
    assert logs["tokens"] == 6
    assert logs["loss"] == pytest.approx(float(sums.loss) / 6, rel=1e-5)
    assert logs["cross_entropy"] == pytest.approx(float(sums.cross_entropy) / 6, rel=1e-5)


def test_steps_lower_the_loss() -> None:
    losses = [logs["loss"] for logs in graph_steps(make_trainer(learning_rate_scale=2.0), 30)]
    assert losses[-1] < losses[0] / 2


def test_gradient_is_that_of_the_mean_over_tokens_not_over_rows() -> None:
    """A row that occurs twice counts twice, and a row of padding does not count."""
    doubled = tf.nest.map_structure(lambda ids: np.concatenate([ids, ids, 0 * ids[:1]]), BATCH)
    once, twice = step(make_trainer()), step(make_trainer(), doubled)
    assert twice["gradient_norm"] == pytest.approx(once["gradient_norm"], rel=1e-4)


def test_clipping_limits_the_step_but_not_the_reported_norm() -> None:
    free, clipped = make_trainer(adam_epsilon=1.0), make_trainer(adam_epsilon=1.0, clip_norm=0.01)
    before = weights(free)
    norms = step(free)["gradient_norm"], step(clipped)["gradient_norm"]

    def distance(trainer: Trainer) -> float:
        changes = [new - old for new, old in zip(weights(trainer), before, strict=True)]
        return float(np.sqrt(sum((change**2).sum() for change in changes)))

    assert norms[0] == pytest.approx(norms[1]) != pytest.approx(0.01)
    # With such a large epsilon, Adam's step is proportional to the gradient.
    assert distance(clipped) / distance(free) == pytest.approx(0.01 / norms[0], rel=0.05)


def test_batch_of_padding_changes_no_weight() -> None:
    trainer = make_trainer()
    before = weights(trainer)
    logs = step(trainer, tf.nest.map_structure(np.zeros_like, BATCH))
    assert logs["tokens"] == logs["loss"] == 0
    for old, new in zip(before, weights(trainer), strict=True):
        np.testing.assert_array_equal(new, old)


def test_step_that_is_not_finite_is_skipped_and_changes_nothing() -> None:
    trainer = make_trainer()
    step(trainer)
    table = trainer.transformer.target_embedding.table
    intact = table.numpy()
    before = [variable.numpy() for variable in (*trainer.weights, *trainer.optimizer.variables[1:])]
    table.assign(np.where(np.arange(12)[:, None] == 7, np.nan, intact))
    logs = step(trainer)
    table.assign(intact)
    after = [variable.numpy() for variable in (*trainer.weights, *trainer.optimizer.variables[1:])]
    assert logs["skipped"] == 1
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one, other)
    assert step(trainer)["skipped"] == 0


def test_bfloat16_keeps_float32_weights_and_nearly_the_same_loss() -> None:
    exact = step(make_trainer())["loss"]
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        trainer = make_trainer()
        assert trainer.transformer.compute_dtype == "bfloat16"
        assert {weight.dtype.name for weight in weights(trainer)} == {"float32"}
        assert step(trainer)["loss"] == pytest.approx(exact, rel=0.02)
    finally:
        keras.config.set_dtype_policy("float32")


# --- Accumulated parts and parallel streams -------------------------------------------------------


@pytest.fixture(scope="module")
def whole_batch_steps() -> list[dict[str, float]]:
    return graph_steps(make_trainer(clip_norm=0.5), 5)


@pytest.mark.parametrize(
    "divided",
    [{"device_tokens": 4}, {"streams": 2}, {"streams": 3}, {"streams": 2, "device_tokens": 4}],
)
def test_divided_batch_gives_the_same_steps_as_the_whole_batch(
    divided: dict[str, int], whole_batch_steps: list[dict[str, float]]
) -> None:
    steps = graph_steps(make_trainer(clip_norm=0.5, **divided), 5)
    for found, expected in zip(steps, whole_batch_steps, strict=True):
        assert found == pytest.approx(expected, rel=1e-5)


def test_streams_share_all_rows_and_none_is_empty() -> None:
    trainer = make_trainer(streams=3)
    for rows in (1, 2, 3, 7):
        ids = np.arange(1, rows + 1, dtype="int32")[:, None]
        shares = [trainer._share(ids, stream).numpy().ravel().tolist() for stream in range(3)]
        assert sorted(row for share in shares for row in share if row) == [*range(1, rows + 1)]
        assert 1 <= min(map(len, shares)) >= max(map(len, shares)) - 1


def test_flash_attention_makes_the_same_steps(
    whole_batch_steps: list[dict[str, float]],
) -> None:
    steps = graph_steps(make_trainer(clip_norm=0.5, attention="flash", streams=2), 5)
    for found, expected in zip(steps, whole_batch_steps, strict=True):
        assert found == pytest.approx(expected, rel=1e-5)


# --- Dropout --------------------------------------------------------------------------------------


def test_dropout_differs_between_steps_and_repeats_in_a_repeated_run() -> None:
    first, second = make_trainer(dropout=0.5), make_trainer(dropout=0.5)
    losses = [(step(trainer)["loss"], step(trainer)["loss"]) for trainer in (first, second)]
    assert losses[0] == losses[1]
    seeds = [first._dropout_seed(tf.distribute.get_replica_context()).numpy().tolist()]
    step(first)
    seeds.append(first._dropout_seed(tf.distribute.get_replica_context()).numpy().tolist())
    assert seeds[0] != seeds[1]


@pytest.mark.parametrize("divided", [{"device_tokens": 4}, {"streams": 2}])
def test_dropout_differs_between_the_parts_of_a_step(divided: dict[str, int]) -> None:
    same = tf.nest.map_structure(lambda ids: np.repeat(ids[:1], 2, axis=0), BATCH)
    single = tf.nest.map_structure(lambda ids: ids[:1], same)
    alone = step(make_trainer(dropout=0.5), single)
    together = step(make_trainer(dropout=0.5, **divided), same)
    assert alone["loss"] != pytest.approx(together["loss"], rel=1e-3)


def test_r_drop_without_dropout_counts_tokens_twice_and_changes_nothing_else() -> None:
    once, twice = step(make_trainer()), step(make_trainer(r_drop=5.0))
    assert twice["tokens"] == 2 * once["tokens"]
    for name in ("loss", "cross_entropy", "accuracy", "padding", "gradient_norm"):
        assert twice[name] == pytest.approx(once[name], rel=1e-4)


def test_r_drop_adds_the_divergence_of_two_dropout_masks_to_the_loss() -> None:
    losses = [step(make_trainer(dropout=0.5, r_drop=alpha))["loss"] for alpha in (1e-6, 1.0, 3.0)]
    assert losses[2] - losses[0] == pytest.approx(3 * (losses[1] - losses[0]), rel=1e-3)
    assert losses[1] > losses[0] + 0.01


# --- SimCut ---------------------------------------------------------------------------------------

ALL = 0.99999
"""A share that cuts every token off, so that no random number has an effect."""


def test_simcut_that_cuts_no_token_changes_nothing_without_dropout() -> None:
    plain, intact = step(make_trainer()), step(make_trainer(simcut=3.0, simcut_share=1e-9))
    assert intact == pytest.approx(plain, rel=1e-4)


def test_simcut_adds_the_divergence_of_the_cut_input_and_counts_tokens_once() -> None:
    plain = step(make_trainer())
    weak, strong = (step(make_trainer(simcut=alpha, simcut_share=0.5)) for alpha in (1.0, 3.0))
    for name in ("cross_entropy", "tokens", "accuracy", "padding"):
        assert strong[name] == pytest.approx(plain[name], rel=1e-5)
    divergence = weak["loss"] - plain["loss"]
    assert divergence > 0.01
    assert strong["loss"] - plain["loss"] == pytest.approx(3 * divergence, rel=1e-3)


def test_simcut_cuts_tokens_of_both_sides_in_the_second_pass_only() -> None:
    trainer = make_trainer(simcut=3.0, simcut_share=0.4)
    seed = tf.constant([1, 2])
    cut = {}
    for cutoff in (trainer.source_cutoff, trainer.target_cutoff):
        kept = trainer._kept(cutoff, tf.zeros([50, 40], tf.int32), seed).numpy()
        assert kept[:50].all()
        assert kept[50:].mean() == pytest.approx(0.6, abs=0.03)
        assert set(kept.ravel()) == {0, 1}
        cut[cutoff.name] = kept
        other = trainer._kept(cutoff, tf.zeros([50, 40], tf.int32), seed + 1).numpy()
        assert (other != kept).any()
    assert (cut["source_cutoff"] != cut["target_cutoff"]).any()


def test_simcut_repeats_in_a_repeated_run_and_differs_between_steps() -> None:
    first, second = (make_trainer(simcut=3.0, simcut_share=0.3) for _ in range(2))
    assert [step(first) for _ in range(3)] == [step(second) for _ in range(3)]
    frozen = make_trainer(simcut=3.0, simcut_share=0.3, learning_rate_scale=1e-9)
    assert step(frozen)["loss"] != pytest.approx(step(frozen)["loss"], rel=1e-4)


def test_simcut_of_a_divided_batch_makes_the_steps_of_the_whole_batch() -> None:
    """The divided batch also has flash attention, which must make no difference."""
    simcut = {"simcut": 3.0, "simcut_share": ALL}
    whole = make_trainer(**simcut)
    divided = make_trainer(**simcut, attention="flash", streams=2, device_tokens=8)
    for _ in range(3):
        expected = step(whole)
        assert step(divided) == pytest.approx(expected, rel=1e-5)
    assert expected["loss"] > expected["cross_entropy"] + 0.05


# --- Weights and optimizer ------------------------------------------------------------------------


def test_write_weights_writes_moving_averages_and_leaves_the_weights_unchanged() -> None:
    trainer = make_trainer(ema_decay=0.5)
    seen = []
    for _ in range(3):
        step(trainer)
        seen.append(weights(trainer))
    expected = [0.25 * a + 0.25 * b + 0.5 * c for a, b, c in zip(*seen, strict=True)]
    other = make_trainer()
    trainer.write_weights(other.transformer)
    for one, average in zip(weights(other), expected, strict=True):
        np.testing.assert_allclose(one, average, atol=1e-6)
    for one, last in zip(weights(trainer), seen[-1], strict=True):
        np.testing.assert_array_equal(one, last)


def test_write_weights_without_moving_averages_writes_the_weights() -> None:
    trainer, other = make_trainer(), make_trainer()
    step(trainer)
    trainer.write_weights(other.transformer)
    for one, written in zip(weights(trainer), weights(other), strict=True):
        np.testing.assert_array_equal(one, written)


def test_optimizer_makes_the_steps_of_keras_adam() -> None:
    ours = make_optimizer(TrainingConfig(warmup_steps=10), 16)
    keras_adam = keras.optimizers.Adam(
        NoamSchedule(16, 10, 1.0), beta_1=0.9, beta_2=0.98, epsilon=1e-9
    )
    generator = np.random.default_rng(0)
    initial = generator.standard_normal((3, 4)).astype("float32")
    both = [keras.Variable(initial), keras.Variable(initial)]
    for optimizer, weight in zip((ours, keras_adam), both, strict=True):
        optimizer.build([weight])
    for _ in range(20):
        gradient = tf.constant(generator.standard_normal((3, 4)), tf.float32)
        ours.apply_if(tf.constant(True), [gradient])
        keras_adam.apply([gradient])
        np.testing.assert_allclose(both[0].numpy(), both[1].numpy(), atol=1e-6)
    for one, other in zip(ours.variables, keras_adam.variables, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_optimizer_skips_a_step_without_changing_weight_or_moments(value: float) -> None:
    optimizer, weight = make_optimizer(TrainingConfig(), 16), keras.Variable(np.ones(3, "float32"))
    optimizer.build([weight])
    optimizer.apply_if(tf.constant(True), [tf.constant([1.0, -2.0, 3.0])])
    before = [variable.numpy() for variable in (weight, *optimizer.variables[2:])]
    optimizer.apply_if(tf.constant(False), [tf.constant([1.0, value, 3.0])])
    after = [variable.numpy() for variable in (weight, *optimizer.variables[2:])]
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one, other)
    assert int(optimizer.iterations) == 2
