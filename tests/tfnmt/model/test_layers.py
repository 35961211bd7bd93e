import functools
from typing import Any

import keras
import numpy as np
import pytest
from keras import ops

from tests.backend import SEED_DTYPE, pullback
from tfnmt.config import ModelConfig
from tfnmt.model.layers import Dense, Dropout, LayerNorm, leading_shape
from tfnmt.model.transformer import Transformer


def random(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


# --- Dense ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", [None, "relu"])
def test_dense_matches_keras(activation: str | None) -> None:
    layer = Dense(5, activation=activation)
    layer.build((None, None, 3))
    layer.bias.assign(np.arange(5.0) - 2)
    keras_layer = keras.layers.Dense(5, activation=activation)
    keras_layer.build((None, None, 3))
    keras_layer.set_weights(layer.get_weights())
    x = random(2, 4, 3)
    np.testing.assert_allclose(layer(x), keras_layer(x), atol=1e-6)


def test_leading_shape_has_no_tensor_if_a_size_is_known() -> None:
    x = functools.partial(keras.KerasTensor, dtype="float32")
    assert leading_shape(x((2, 7, 3))) == (2, 7)
    assert leading_shape(x((None, 7, 3))) == (-1, 7)
    assert leading_shape(x((2, None, 3))) == (2, -1)


# --- Layer normalization --------------------------------------------------------------------------


@pytest.fixture
def norms() -> tuple[LayerNorm, keras.layers.LayerNormalization]:
    """Our layer and that of Keras, with the same weights."""
    layers = LayerNorm(epsilon=1e-6), keras.layers.LayerNormalization(epsilon=1e-6)
    for norm in layers:
        norm.build((None, None, 8))
        norm.set_weights([random(8, seed=1), random(8, seed=2)])
    return layers


def gradients(norm: Any, x: Any, output_gradient: Any) -> tuple[Any, list[Any]]:
    """Return the output and the gradients with respect to x, gamma and beta."""
    y, pull = pullback(norm, [x], [norm.gamma, norm.beta])
    return y, pull(output_gradient)


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e3])
def test_layer_norm_output_and_gradients_match_keras(norms: Any, scale: float) -> None:
    ours, theirs = norms
    x, output_gradient = 5 + scale * random(3, 4, 8), random(3, 4, 8, seed=3)
    y, found = gradients(ours, x, output_gradient)
    expected_y, expected = gradients(theirs, x, output_gradient)
    np.testing.assert_allclose(y, expected_y, rtol=1e-4, atol=2e-3 if scale < 1 else 1e-5)
    for one, other in zip(found, expected, strict=True):
        size = np.abs(other).max()
        np.testing.assert_allclose(one, other, atol=size * (1e-2 if scale < 1 else 1e-5))


def test_layer_norm_of_a_constant_row_is_finite(norms: Any) -> None:
    y, found = gradients(norms[0], np.ones((1, 2, 8), "float32"), random(1, 2, 8))
    assert all(np.isfinite(value).all() for value in (y, *found))


def test_layer_norm_computes_in_float32_in_mixed_precision() -> None:
    mixed, full = (LayerNorm(epsilon=1e-6, dtype=name) for name in ("mixed_bfloat16", "float32"))
    x = random(3, 4, 8)
    rounded = ops.cast(x, "bfloat16")
    y = mixed(rounded)
    assert keras.backend.standardize_dtype(y.dtype) == "bfloat16"
    expected = ops.cast(full(ops.cast(rounded, "float32")), "bfloat16")
    np.testing.assert_array_equal(ops.cast(y, "float32"), ops.cast(expected, "float32"))


# --- Dropout --------------------------------------------------------------------------------------

X = np.ones((200, 200), "float32")


def make_dropout(name: str, rate: float = 0.3) -> Dropout:
    layer = Dropout(rate, name=name)
    layer.build(X.shape)
    return layer


def seed(*numbers: int) -> Any:
    return ops.array(numbers, SEED_DTYPE)


def test_dropout_without_a_seed_changes_nothing() -> None:
    np.testing.assert_array_equal(make_dropout("a")(X), X)


def test_dropout_drops_the_rate_and_keeps_the_mean() -> None:
    dropped = np.array(make_dropout("a")(X, seed(1, 2)))
    assert (dropped == 0).mean() == pytest.approx(0.3, abs=0.01)
    assert dropped.mean() == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("rate", [0.001, 0.1, 0.5, 0.9])
def test_dropout_meets_small_and_large_rates(rate: float) -> None:
    x = np.ones((999, 1001), "float32")  # an odd number of elements
    dropped = np.array(make_dropout("a", rate)(x, seed(1, 2)))
    assert (dropped == 0).mean() == pytest.approx(rate, abs=5 * (rate / x.size) ** 0.5)
    assert dropped.max() == pytest.approx(1 / (1 - rate))


def test_dropout_of_neighbors_and_of_rows_is_independent() -> None:
    """Two neighboring elements share one random int32, but none of its bits."""
    kept = np.array(make_dropout("a", 0.5)(X, seed(1, 2))) != 0
    for one, other in ((kept[:, ::2], kept[:, 1::2]), (kept[:-1], kept[1:]), (kept, kept.T)):
        assert np.mean(one == other) == pytest.approx(0.5, abs=0.02)


def test_dropout_gradient_is_the_scaled_mask() -> None:
    y, pull = pullback(lambda x: make_dropout("a")(x, seed(1, 2)), [X])
    np.testing.assert_array_equal(pull(ops.ones_like(y))[0], y)  # x is 1 everywhere


def test_dropout_repeats_its_mask_for_the_same_seed_and_path() -> None:
    first, second = make_dropout("a"), make_dropout("a")
    np.testing.assert_array_equal(first(X, seed(1, 2)), second(X, seed(1, 2)))


@pytest.mark.parametrize(
    ("name", "other_seed"),
    [("b", (1, 2)), ("a", (2, 2)), ("a", (1, 3))],
    ids=["layer", "run", "step"],
)
def test_dropout_masks_differ_between_layers_runs_and_steps(
    name: str, other_seed: tuple[int, int]
) -> None:
    first, second = make_dropout("a")(X, seed(1, 2)), make_dropout(name)(X, seed(*other_seed))
    agreement = np.mean((np.array(first) == 0) == (np.array(second) == 0))
    assert agreement == pytest.approx(0.3**2 + 0.7**2, abs=0.02)  # as for independent masks


def test_dropout_seed_reaches_every_dropout_of_the_transformer() -> None:
    config = ModelConfig(
        num_encoder_layers=2, num_decoder_layers=2, d_model=16, num_heads=2, d_ff=32, dropout=0.5
    )
    keras.utils.set_random_seed(1)
    model = Transformer(config, 50)
    dropouts = [layer for layer in model._flatten_layers() if isinstance(layer, Dropout)]
    # Both embedding sums. Per encoder layer 2 residuals, 1 attention, 1 feed-forward network. Per
    # decoder layer 3 residuals, 2 attentions, 1 feed-forward network.
    assert len({layer.path for layer in dropouts}) == len(dropouts) == 2 + 2 * 4 + 2 * 6
    source, target = np.array([[5, 6, 2]]), np.array([[1, 7, 8]])
    without_dropout = np.array(model(source, target))
    for layer in dropouts:
        for other in dropouts:
            other.rate = 0.9 if other is layer else 0
        with_dropout = np.array(model(source, target, seed=seed(1, 2)))
        assert np.abs(without_dropout - with_dropout).max() > 1e-3, layer.path
