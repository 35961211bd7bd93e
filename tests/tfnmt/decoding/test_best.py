"""The short ways against the plain ones."""

import numpy as np
import pytest
import tensorflow as tf

from tfnmt.decoding.best import BLOCK, filled_up, normalizer, top_k


def numbers(rows: int, size: int) -> np.ndarray:
    return np.random.default_rng(size).standard_normal((rows, size)).astype("float32")


@pytest.mark.parametrize("size", [BLOCK, 8 * BLOCK, 40 * BLOCK, 40 * BLOCK + 1, 8])
@pytest.mark.parametrize("k", [1, 5, 8])
def test_the_largest_are_those_of_a_sort(size: int, k: int) -> None:
    x = numbers(6, size)
    best, where = top_k(tf.constant(x), k)
    order = np.argsort(-x, axis=1)[:, :k]
    np.testing.assert_array_equal(where, order)
    np.testing.assert_array_equal(best, np.take_along_axis(x, order, axis=1))


def test_the_largest_may_all_be_in_one_block() -> None:
    x = numbers(1, 20 * BLOCK)
    x[0, 3 * BLOCK : 3 * BLOCK + 8] = np.arange(100, 108)
    _, where = top_k(tf.constant(x), 8)
    assert where.numpy().tolist() == [list(range(3 * BLOCK + 7, 3 * BLOCK - 1, -1))]


def test_the_largest_of_rows_with_little_that_is_possible() -> None:
    x = np.full((1, 20 * BLOCK), -np.inf, "float32")
    x[0, [7, 500]] = 1.0, 2.0
    best, where = top_k(tf.constant(x), 4)
    assert where.numpy()[0, :2].tolist() == [500, 7]
    assert np.isneginf(best.numpy()[0, 2:]).all()


def test_no_rows_have_no_largest() -> None:
    best, where = top_k(tf.zeros([0, 20 * BLOCK]), 4)
    assert best.shape == where.shape == (0, 4)


@pytest.mark.parametrize("scale", [1, 50, 1000])
def test_the_normalizer_is_log_sum_exp(scale: float) -> None:
    x = scale * numbers(6, 99)
    expected = tf.reduce_logsumexp(tf.constant(x, tf.float64), axis=1, keepdims=True)
    np.testing.assert_allclose(normalizer(tf.constant(x)), expected, rtol=1e-5)


def test_sizes_are_filled_up_to_whole_blocks() -> None:
    assert [filled_up(size) for size in (1, BLOCK, BLOCK + 1)] == [BLOCK, BLOCK, 2 * BLOCK]
