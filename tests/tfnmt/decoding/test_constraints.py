"""Each constraint against a plain loop over what it forbids."""

import numpy as np
import pytest
import tensorflow as tf

from tfnmt.decoding.constraints import at_least, beginning_with, without_repeats

V, EOS = 6, 2
LOG_PROBS = np.log(np.random.default_rng(0).dirichlet(np.ones(V), 4)).astype("float32")


def forbidden(constrained: tf.Tensor) -> list[set[int]]:
    """The pieces each row may not take; the others must have kept their log probability."""
    found = constrained.numpy()
    np.testing.assert_array_equal(found[np.isfinite(found)], LOG_PROBS[np.isfinite(found)])
    return [set(np.flatnonzero(row == -np.inf).tolist()) for row in found]


@pytest.mark.parametrize(("position", "ends"), [(0, False), (2, False), (3, True), (9, True)])
def test_no_end_comes_before_the_minimum(position: int, ends: bool) -> None:
    tokens = tf.zeros([4, 10], tf.int32)
    found = forbidden(at_least(3)(LOG_PROBS, tokens, tf.constant(position)))
    assert found == [set() if ends else {EOS}] * 4


def repeats(tokens: list[int], size: int) -> set[int]:
    """By definition: pieces whose row of `size` with those before them was there already."""
    rows = [tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1)]
    return {v for v in range(V) if len(tokens) >= size - 1
            and (*tokens[len(tokens) - size + 1 :], v) in rows}  # fmt: skip


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("position", [0, 1, 2, 3, 7, 11])
def test_no_row_of_pieces_comes_twice(size: int, position: int) -> None:
    tokens = np.random.default_rng(size).integers(3, V, (4, 12)).astype("int32")
    tokens[:, position:] = 0
    found = forbidden(without_repeats(size)(LOG_PROBS, tf.constant(tokens), tf.constant(position)))
    assert found == [repeats(row[:position].tolist(), size) for row in tokens]
    if position > 6 and size == 2:
        assert any(found)


def test_fewer_positions_than_a_row_of_pieces_forbid_nothing() -> None:
    found = forbidden(without_repeats(4)(LOG_PROBS, tf.zeros([4, 2], tf.int32), tf.constant(1)))
    assert found == [set()] * 4


def test_a_prefix_is_that_of_its_row_and_of_every_beam() -> None:
    constrain = beginning_with(tf.constant([[5, 3], [4, 0]]))  # two rows of two beams
    tokens = tf.zeros([4, 6], tf.int32)
    every = set(range(V))
    assert forbidden(constrain(LOG_PROBS, tokens, tf.constant(0))) == [
        every - {5}, every - {5}, every - {4}, every - {4}
    ]  # fmt: skip
    assert forbidden(constrain(LOG_PROBS, tokens, tf.constant(1))) == [
        every - {3}, every - {3}, set(), set()
    ]  # fmt: skip
    assert forbidden(constrain(LOG_PROBS, tokens, tf.constant(2))) == [set()] * 4


def test_a_prefix_may_repeat_what_it_likes() -> None:
    tokens = tf.constant([[5, 5, 5, 0]] * 4)
    constrain = without_repeats(2, since=3)
    assert forbidden(constrain(LOG_PROBS, tokens, tf.constant(2))) == [set()] * 4
    assert forbidden(constrain(LOG_PROBS, tokens, tf.constant(3))) == [{5}] * 4
