import numpy as np
import pytest

from tfnmt.model.sublayers import FeedForward, Residual

X = np.array([[[1.0, 2.0, 3.0, 6.0]]], "float32")


def normed(x: np.ndarray, epsilon: float) -> np.ndarray:
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon)


def around(function: object, norm_first: bool, epsilon: float = 1e-6) -> np.ndarray:
    residual = Residual(4, 0.0, norm_first, epsilon)
    residual.build()
    return np.array(residual.leave(X, function(residual.enter(X))))  # type: ignore[operator]


def test_pre_norm_adds_the_sublayer_of_the_normed_input() -> None:
    np.testing.assert_allclose(around(lambda x: x * x, True), X + normed(X, 1e-6) ** 2, atol=1e-5)


def test_post_norm_norms_the_sum() -> None:
    np.testing.assert_allclose(around(lambda x: x * x, False), normed(X + X * X, 1e-6), atol=1e-5)


def test_epsilon_is_the_configured_one_not_keras_own() -> None:
    np.testing.assert_allclose(around(lambda x: 0 * x, False, 2.0), normed(X, 2.0), atol=1e-5)


def built(activation: str) -> FeedForward:
    layer = FeedForward(8, 32, 0.0, activation)
    layer.build()
    return layer


def test_relu_feed_forward_is_equation_2() -> None:
    layer = built("relu")
    w_1, b_1, w_2, b_2 = (np.array(weight) for weight in layer.weights)
    x = np.random.default_rng(0).standard_normal((2, 3, 8)).astype("float32")
    np.testing.assert_allclose(layer(x), np.maximum(0, x @ w_1 + b_1) @ w_2 + b_2, atol=1e-5)


def test_it_has_552_parameters_at_width_8_and_32() -> None:
    assert built("relu").count_params() == 8 * 32 + 32 + 32 * 8 + 8 == 552


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_positions_do_not_mix(activation: str) -> None:
    layer = built(activation)
    x = np.random.default_rng(0).standard_normal((1, 4, 8)).astype("float32")
    whole = np.array(layer(x))
    for position in range(4):
        np.testing.assert_allclose(
            layer(x[:, position : position + 1])[0, 0], whole[0, position], atol=1e-6
        )
