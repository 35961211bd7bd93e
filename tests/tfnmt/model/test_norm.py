from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfnmt.model.norm import LayerNorm


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
