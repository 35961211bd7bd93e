from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfnmt.config import ModelConfig
from tfnmt.model.layers import Dense, Dropout, LayerNorm, length
from tfnmt.model.transformer import Transformer


@pytest.mark.parametrize("activation", [None, "relu"])
def test_it_is_keras_dense_with_another_product(activation: str | None) -> None:
    layer = Dense(5, activation=activation)
    layer.build((None, None, 3))
    layer.bias.assign(np.arange(5.0) - 2)
    theirs = keras.layers.Dense(5, activation=activation)
    theirs.build((None, None, 3))
    theirs.set_weights(layer.get_weights())
    x = np.random.default_rng(0).standard_normal((2, 4, 3)).astype("float32")
    np.testing.assert_allclose(layer(x), theirs(x), atol=1e-6)


def test_a_length_that_is_known_costs_no_operation() -> None:
    assert length(np.zeros((2, 7, 3))) == 7


def random(*shape: int, seed: int = 0) -> Any:
    return tf.constant(np.random.default_rng(seed).standard_normal(shape).astype("float32"))


@pytest.fixture
def norms() -> tuple[LayerNorm, keras.layers.LayerNormalization]:
    """Ours and Keras', with the same weights."""
    made = LayerNorm(epsilon=1e-6), keras.layers.LayerNormalization(epsilon=1e-6)
    for norm in made:
        norm.build((None, None, 8))
        norm.set_weights([random(8, seed=1).numpy(), random(8, seed=2).numpy()])
    return made


def gradients(norm: Any, x: Any, by_output: Any) -> tuple[Any, list[Any]]:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = norm(x)
    wanted = [x, norm.gamma.value, norm.beta.value]
    return y, tape.gradient(y, wanted, output_gradients=by_output)


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e3])
def test_output_and_gradients_are_those_of_keras(norms: Any, scale: float) -> None:
    ours, theirs = norms
    x, by_output = 5 + scale * random(3, 4, 8), random(3, 4, 8, seed=3)
    (y, found), (expected, true) = (
        gradients(ours, x, by_output), gradients(theirs, x, by_output)
    )  # fmt: skip
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=2e-3 if scale < 1 else 1e-5)
    for one, other in zip(found, true, strict=True):
        size = np.abs(other).max()
        np.testing.assert_allclose(one, other, atol=size * (1e-2 if scale < 1 else 1e-5))


def test_a_row_of_one_value_stays_finite(norms: Any) -> None:
    y, found = gradients(norms[0], tf.ones((1, 2, 8)), random(1, 2, 8))
    assert all(np.isfinite(value).all() for value in (y, *found))


def test_in_half_precision_it_is_computed_in_float32() -> None:
    half, full = (LayerNorm(epsilon=1e-6, dtype=name) for name in ("mixed_bfloat16", "float32"))
    x = random(3, 4, 8)
    rounded = tf.cast(x, tf.bfloat16)
    y = half(rounded)
    assert y.dtype == tf.bfloat16
    expected = tf.cast(full(tf.cast(rounded, tf.float32)), tf.bfloat16)
    np.testing.assert_array_equal(tf.cast(y, tf.float32), tf.cast(expected, tf.float32))


X = np.ones((200, 200), "float32")


def place(name: str, rate: float = 0.3) -> Dropout:
    layer = Dropout(rate, name=name)
    layer.build(X.shape)
    return layer


def seed(*numbers: int) -> Any:
    return tf.constant(numbers, tf.int32)


def test_without_a_seed_nothing_is_dropped() -> None:
    np.testing.assert_array_equal(place("a")(X), X)


def test_the_rate_is_dropped_and_the_mean_stays() -> None:
    dropped = np.array(place("a")(X, seed(1, 2)))
    assert (dropped == 0).mean() == pytest.approx(0.3, abs=0.01)
    assert dropped.mean() == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("rate", [0.001, 0.1, 0.5, 0.9])
def test_any_rate_is_met(rate: float) -> None:
    x = np.ones((1000, 1001), "float32")  # an odd number of them
    dropped = np.array(place("a", rate)(x, seed(1, 2)))
    assert (dropped == 0).mean() == pytest.approx(rate, abs=5 * (rate / x.size) ** 0.5)
    assert dropped.max() == pytest.approx(1 / (1 - rate))


def test_neighbours_and_rows_fall_independently() -> None:
    """Two numbers come of one word: neither knows of the other."""
    kept = np.array(place("a", 0.5)(X, seed(1, 2))) != 0
    for one, other in ((kept[:, ::2], kept[:, 1::2]), (kept[:-1], kept[1:]), (kept, kept.T)):
        assert np.mean(one == other) == pytest.approx(0.5, abs=0.02)


def test_the_gradient_is_what_was_kept() -> None:
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = place("a")(x, seed(1, 2))
    np.testing.assert_array_equal(tape.gradient(y, x), y)


def test_a_seed_drops_the_same_again_also_in_another_layer_of_that_path() -> None:
    np.testing.assert_array_equal(place("a")(X, seed(1, 2)), place("a")(X, seed(1, 2)))


@pytest.mark.parametrize(
    ("other", "other_seed"), [("b", (1, 2)), ("a", (2, 2)), ("a", (1, 3))],
    ids=["place", "run", "step"],
)  # fmt: skip
def test_another_place_run_or_step_drops_otherwise(other: str, other_seed: tuple[int, int]) -> None:
    first, second = place("a")(X, seed(1, 2)), place(other)(X, seed(*other_seed))
    agreement = np.mean((np.array(first) == 0) == (np.array(second) == 0))
    assert agreement == pytest.approx(0.3**2 + 0.7**2, abs=0.02)  # what chance gives


def test_the_seed_reaches_every_dropout_of_the_transformer() -> None:
    model = Transformer(ModelConfig(d_model=16, num_heads=2, d_ff=32, dropout=0.5), 50)
    model.encoder.blocks[0].self_attention.dropout.rate = 0.5
    dropouts = [layer for layer in model._flatten_layers() if isinstance(layer, Dropout)]
    # Both embedding sums; in an encoder layer 2 residuals, attention and ffn; 3 + 3 in a decoder's.
    assert len({layer.path for layer in dropouts}) == len(dropouts) == 2 + 4 * (2 + 2) + 4 * (3 + 3)
    source, target = np.array([[5, 6, 2]]), np.array([[1, 7, 8]])
    keras.utils.set_random_seed(1)
    for layer in dropouts:
        rates = [(other, other.rate) for other in dropouts]
        for other in dropouts:
            other.rate = 0.9 if other is layer else 0
        quiet, loud = model(source, target), model(source, target, seed=seed(1, 2))
        assert np.abs(np.array(quiet) - np.array(loud)).max() > 1e-3, layer.path
        for other, rate in rates:
            other.rate = rate
