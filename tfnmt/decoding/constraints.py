"""Which pieces may come next in a translation.

A constraint maps (logits [N, V], tokens [N, T] so far, position []) to the logits with -inf where a
piece may not stand. The others stay as they are: a score is the model's own.
"""

from collections.abc import Callable

import tensorflow as tf

from tfnmt.data.preparation.tokenizer import EOS, PAD
from tfnmt.model.layers import Tensor

Constraint = Callable[[Tensor, Tensor, Tensor], Tensor]

NEVER = -float("inf")


def at_least(length: int) -> Constraint:
    """No end before a translation has `length` pieces, eos not counted."""

    def constrain(logits: Tensor, tokens: Tensor, position: Tensor) -> Tensor:
        ends = tf.range(tf.shape(logits)[-1]) == EOS
        return tf.where(ends & (position < length), NEVER, logits)

    return constrain


def without_repeats(size: int, since: int = 0) -> Constraint:
    """No `size` pieces in a row that the translation has already; before `since` all may come."""

    def constrain(logits: Tensor, tokens: Tensor, position: Tensor) -> Tensor:
        before = size - 1  # pieces that come before the one to choose
        starts = tf.maximum(tf.shape(tokens)[1] - before, 0)  # where such a row can begin
        same = tf.fill([tf.shape(tokens)[0], starts], True)  # [N, starts]
        for offset in range(before):
            last = tf.gather(tokens, tf.maximum(position - before + offset, 0), axis=1)  # [N]
            same &= tokens[:, offset : offset + starts] == last[:, None]
        known = (tf.range(starts) + before < position) & (position >= since)
        banned = tf.where(same & known, NEVER, 0.0)
        rows = tf.repeat(tf.range(tf.shape(tokens)[0]), starts)
        columns = tf.reshape(tokens[:, before : before + starts], [-1])
        where = tf.stack([rows, columns], axis=1)
        return tf.tensor_scatter_nd_min(
            logits, where, tf.gather_nd(logits, where) + tf.reshape(banned, [-1])
        )

    return constrain


def beginning_with(prefix: Tensor) -> Constraint:
    """Every translation of a row begins with its ids of prefix [B, P]; 0 leaves the piece free.

    N is a multiple of B: the beams of a row follow one another.
    """

    def constrain(logits: Tensor, tokens: Tensor, position: Tensor) -> Tensor:
        beams = tf.shape(logits)[0] // tf.maximum(tf.shape(prefix)[0], 1)
        filled = tf.pad(prefix, [[0, 0], [0, tf.shape(tokens)[1]]])
        wanted = tf.repeat(filled[:, position], beams)[:, None]  # [N, 1]
        pieces = tf.range(tf.shape(logits)[-1])
        return tf.where((wanted == PAD) | (wanted == pieces), logits, NEVER)

    return constrain
