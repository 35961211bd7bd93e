import numpy as np
import pytest

from tfnmt.model.sublayers import FeedForward, Residual

X = np.array([[[1.0, 2.0, 3.0, 6.0]]], "float32")


# --- Residual -------------------------------------------------------------------------------------


def normalize(x: np.ndarray, epsilon: float) -> np.ndarray:
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon)


def apply_residual(function: object, norm_first: bool, epsilon: float = 1e-6) -> np.ndarray:
    """Apply a residual connection around a function to X."""
    residual = Residual(4, 0.0, norm_first, epsilon)
    residual.build()
    output = function(residual.sublayer_input(X))  # type: ignore[operator]
    return np.array(residual.add(X, output))


def test_pre_norm_adds_the_sublayer_of_the_normalized_input() -> None:
    actual = apply_residual(lambda x: x * x, norm_first=True)
    np.testing.assert_allclose(actual, X + normalize(X, 1e-6) ** 2, atol=1e-5)


def test_post_norm_normalizes_the_sum() -> None:
    actual = apply_residual(lambda x: x * x, norm_first=False)
    np.testing.assert_allclose(actual, normalize(X + X * X, 1e-6), atol=1e-5)


def test_norm_uses_the_configured_epsilon() -> None:
    """The default epsilon of Keras is another one."""
    actual = apply_residual(lambda x: 0 * x, norm_first=False, epsilon=2.0)
    np.testing.assert_allclose(actual, normalize(X, 2.0), atol=1e-5)


# --- Feed-forward network -------------------------------------------------------------------------


def make_layer(activation: str) -> FeedForward:
    layer = FeedForward(8, 32, 0.0, activation)
    layer.build()
    return layer


def test_feed_forward_with_relu_is_equation_2() -> None:
    layer = make_layer("relu")
    w_1, b_1, w_2, b_2 = (np.array(weight) for weight in layer.weights)
    x = np.random.default_rng(0).standard_normal((2, 3, 8)).astype("float32")
    np.testing.assert_allclose(layer(x), np.maximum(0, x @ w_1 + b_1) @ w_2 + b_2, atol=1e-5)


def test_feed_forward_of_widths_8_and_32_has_552_parameters() -> None:
    assert make_layer("relu").count_params() == 8 * 32 + 32 + 32 * 8 + 8 == 552


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_feed_forward_treats_positions_separately(activation: str) -> None:
    layer = make_layer(activation)
    x = np.random.default_rng(0).standard_normal((1, 4, 8)).astype("float32")
    together = np.array(layer(x))
    for position in range(4):
        alone = layer(x[:, position : position + 1])
        np.testing.assert_allclose(alone[0, 0], together[0, position], atol=1e-6)
