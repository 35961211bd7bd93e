"""Constraints on the next token of a translation.

A constraint maps logits [N, V], the tokens so far [N, T] and the position [] to logits with -inf
for excluded tokens. It leaves the other logits unchanged, so that scores remain the model's own.
"""

from collections.abc import Callable

import tensorflow as tf

from tfnmt.data.preparation.tokenizer import EOS, PAD
from tfnmt.model.layers import Tensor

Constraint = Callable[[Tensor, Tensor, Tensor], Tensor]

NEVER = -float("inf")


def minimum_length(length: int) -> Constraint:
    """Return a constraint that excludes EOS before `length` tokens, EOS not counted."""

    def constrain(logits: Tensor, tokens: Tensor, position: Tensor) -> Tensor:
        ends = tf.range(tf.shape(logits)[-1]) == EOS
        return tf.where(ends & (position < length), NEVER, logits)

    return constrain


def no_repeated_ngrams(size: int, since: int = 0) -> Constraint:
    """Return a constraint that excludes n-grams which the translation already contains.

    Args:
        size: n, the number of tokens in an n-gram, 2 or greater.
        since: The first position that is constrained, for translations with a prefix.
    """

    def constrain(logits: Tensor, tokens: Tensor, position: Tensor) -> Tensor:
        before = size - 1  # tokens of an n-gram before the one to choose
        starts = tf.maximum(tf.shape(tokens)[1] - before, 0)  # possible starts of an n-gram
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


def forced_prefix(prefix: Tensor) -> Constraint:
    """Return a constraint that makes the translations of a row begin with its prefix.

    Args:
        prefix: [B, P] ids; 0 leaves the token free. N must be a multiple of B, with the beams of a
            row next to each other.
    """

    def constrain(logits: Tensor, tokens: Tensor, position: Tensor) -> Tensor:
        beams = tf.shape(logits)[0] // tf.maximum(tf.shape(prefix)[0], 1)
        padded = tf.pad(prefix, [[0, 0], [0, tf.shape(tokens)[1]]])
        wanted = tf.repeat(padded[:, position], beams)[:, None]  # [N, 1]
        vocabulary = tf.range(tf.shape(logits)[-1])
        return tf.where((wanted == PAD) | (wanted == vocabulary), logits, NEVER)

    return constrain
