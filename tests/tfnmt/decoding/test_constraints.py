"""Each constraint compared with a naive loop over the tokens that it excludes."""

import numpy as np
import pytest
import tensorflow as tf

from tfnmt.decoding.constraints import forced_prefix, minimum_length, no_repeated_ngrams

V, EOS = 6, 2
LOG_PROBS = np.log(np.random.default_rng(0).dirichlet(np.ones(V), 4)).astype("float32")


def excluded(constrained: tf.Tensor) -> list[set[int]]:
    """Return the excluded tokens of each row; the others must have kept their log probability."""
    found = constrained.numpy()
    np.testing.assert_array_equal(found[np.isfinite(found)], LOG_PROBS[np.isfinite(found)])
    return [set(np.flatnonzero(row == -np.inf).tolist()) for row in found]


@pytest.mark.parametrize(("position", "ends"), [(0, False), (2, False), (3, True), (9, True)])
def test_minimum_length_excludes_eos_before_the_minimum(position: int, ends: bool) -> None:
    tokens = tf.zeros([4, 10], tf.int32)
    found = excluded(minimum_length(3)(LOG_PROBS, tokens, tf.constant(position)))
    assert found == [set() if ends else {EOS}] * 4


def naive_repeats(tokens: list[int], size: int) -> set[int]:
    """Return the tokens that would repeat an n-gram, by definition."""
    ngrams = [tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1)]
    if len(tokens) < size - 1:
        return set()
    last = tokens[len(tokens) - size + 1 :]
    return {token for token in range(V) if (*last, token) in ngrams}


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("position", [0, 1, 2, 3, 7, 11])
def test_no_repeated_ngrams_excludes_the_tokens_that_would_repeat_one(
    size: int, position: int
) -> None:
    tokens = np.random.default_rng(size).integers(3, V, (4, 12)).astype("int32")
    tokens[:, position:] = 0
    constrain = no_repeated_ngrams(size)
    found = excluded(constrain(LOG_PROBS, tf.constant(tokens), tf.constant(position)))
    assert found == [naive_repeats(row[:position].tolist(), size) for row in tokens]
    if position > 6 and size == 2:
        assert any(found)


def test_no_repeated_ngrams_excludes_nothing_in_a_shorter_translation() -> None:
    found = excluded(no_repeated_ngrams(4)(LOG_PROBS, tf.zeros([4, 2], tf.int32), tf.constant(1)))
    assert found == [set()] * 4


def test_no_repeated_ngrams_does_not_constrain_the_prefix() -> None:
    tokens = tf.constant([[5, 5, 5, 0]] * 4)
    constrain = no_repeated_ngrams(2, since=3)
    assert excluded(constrain(LOG_PROBS, tokens, tf.constant(2))) == [set()] * 4
    assert excluded(constrain(LOG_PROBS, tokens, tf.constant(3))) == [{5}] * 4


def test_forced_prefix_applies_to_all_beams_of_its_row() -> None:
    constrain = forced_prefix(tf.constant([[5, 3], [4, 0]]))  # two rows with two beams
    tokens = tf.zeros([4, 6], tf.int32)
    others = {token: set(range(V)) - {token} for token in range(V)}
    found = [excluded(constrain(LOG_PROBS, tokens, tf.constant(position))) for position in range(3)]
    assert found[0] == [others[5], others[5], others[4], others[4]]
    assert found[1] == [others[3], others[3], set(), set()]
    assert found[2] == [set()] * 4
