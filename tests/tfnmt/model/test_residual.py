import numpy as np

from tfnmt.model.residual import Residual

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
