"""Many rows searched as two halves, side by side."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfnmt.data.tokenizer import PAD
from tfnmt.decoding.search import Hypotheses

Tensor = Any
Finds = Callable[..., Hypotheses]
"""Sources [B, S], padding last, and what else there is for all rows alike -> hypotheses of each."""

MANY = 16
"""Rows. From here on two loops were measured to take less time than one: docs/performance.md."""


def in_halves(find: Finds, signature: Sequence[tf.TensorSpec]) -> Finds:
    """The graph of a search which takes many rows apart, so that two processors have one half each.

    A search's operations have few rows: two threads get more done with a search each than with
    each operation of one search shared. Rows of like length go together: the shorter half has less
    padding to read and ends sooner.
    """
    # One graph that is called three times. Three copies of it would take longer to make ready.
    whole = tf.function(
        find, signature, autograph=False, experimental_attributes={"_noinline": True}
    )

    def search(sources: Tensor, *others: Tensor) -> Hypotheses:
        def apart() -> Hypotheses:
            short, long, back = _halves(sources)
            return _together(whole(short, *others), whole(long, *others), back)

        many = tf.shape(sources)[0] >= MANY
        return tf.cond(many, apart, lambda: whole(sources, *others))

    return tf.function(search, signature, autograph=False)


def _halves(sources: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The shorter and the longer of sources [B, S], and where each row of these went, [B]."""
    lengths = tf.math.count_nonzero(sources, axis=1, dtype=tf.int32)  # [B]
    order = tf.argsort(lengths, stable=True)
    half = tf.shape(order)[0] // 2
    longest = tf.maximum(lengths[order[half - 1]], 1)
    short = tf.gather(sources, order[:half])[:, :longest]
    return short, tf.gather(sources, order[half:]), tf.math.invert_permutation(order)


def _together(short: Hypotheses, long: Hypotheses, back: Tensor) -> Hypotheses:
    """Hypotheses of both halves, in the order of the rows that they were."""
    longest = tf.maximum(tf.shape(short.tokens)[2], tf.shape(long.tokens)[2])
    tokens = tf.concat([_padded(half.tokens, longest) for half in (short, long)], axis=0)
    scores = tf.concat([short.scores, long.scores], axis=0)  # [B, K]
    return Hypotheses(tf.gather(tokens, back), tf.gather(scores, back))


def _padded(tokens: Tensor, length: Tensor) -> Tensor:
    """[B, K, T] with padding up to a length."""
    return tf.pad(tokens, [[0, 0], [0, 0], [0, length - tf.shape(tokens)[2]]], constant_values=PAD)
