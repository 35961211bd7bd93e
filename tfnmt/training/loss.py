"""Label-smoothed cross entropy over the target tokens of a batch, without padding (section 5.4)."""

import math
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from tfnmt.model.layers import Tensor

TOKEN_MULTIPLE = 256
"""The number of tokens is padded to a multiple of this, to have fewer different shapes."""


class Sums(NamedTuple):
    """Sums over the target tokens of a batch, without padding; float32 scalars."""

    loss: Tensor  # label-smoothed cross entropy, nats
    cross_entropy: Tensor  # without smoothing: exp of its mean is the perplexity
    correct: Tensor  # tokens that are also the most probable ones
    tokens: Tensor  # target tokens


def perplexity(cross_entropy: float) -> float:
    """Return exp of the mean cross entropy, which is limited so that divergence stays finite."""
    return math.exp(min(cross_entropy, 100.0))


def smoothed_cross_entropy(
    hidden: Tensor, table: Tensor, target_out: Tensor, smoothing: float, r_drop: float | None = None
) -> Sums:
    """Compute the label-smoothed cross entropy, summed over the target tokens.

    The target distribution is `1 - smoothing` at the reference token plus `smoothing / V` at every
    token. Only target tokens get logits, padding does not. With l the logits and y the reference
    token,

        loss = -log softmax(l)[y] + smoothing * (l[y] - mean(l)),

    where l[y] = h . E[y] and mean(l) = h . mean(E) need no pass over the vocabulary.

    Logits and sums are float32. The matrix products of the gradient have the dtype of `hidden`.

    With R-Drop (Wu et al., 2021), `hidden` has the hidden states of two forward passes, one after
    the other. A token then counts twice, and the loss includes `r_drop` times the divergence of
    the two passes.

    Args:
        hidden: Hidden states of the decoder, [B, T, D]; [2B, T, D] with R-Drop.
        table: The output embedding, [V, D].
        target_out: Reference ids, [B, T], padded with 0.
        smoothing: The probability that label smoothing spreads over the vocabulary.
        r_drop: The weight of R-Drop's divergence; None for a single forward pass.

    Returns:
        Sums over the target tokens.
    """
    table = tf.convert_to_tensor(table)
    forward_passes = 1 if r_drop is None else 2
    cross_entropy_sums = _cross_entropy_function(r_drop, hidden.dtype)
    tokens, hidden, weights = _target_tokens(
        target_out, tf.cast(hidden, tf.float32), forward_passes
    )
    loss, cross_entropy, correct = cross_entropy_sums(hidden, table, tokens, weights)
    reference = tf.reduce_sum(hidden * tf.gather(table, tokens), axis=-1)  # [M], l[y]
    mean = tf.linalg.matvec(hidden, tf.reduce_mean(table, axis=0))  # [M]
    return Sums(
        loss=loss + smoothing * tf.reduce_sum(reference - mean),
        cross_entropy=cross_entropy,
        correct=correct,
        tokens=tf.reduce_sum(weights),
    )


def _target_tokens(
    target_out: Tensor, hidden: Tensor, forward_passes: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Select the M target tokens of a batch, without padding.

    The tokens of a forward pass are padded to a multiple of TOKEN_MULTIPLE, with hidden states and
    weights of 0 and any ids. Kernels that are compiled for a shape are then compiled less often.

    Returns:
        Ids [M], hidden [M, D] and weights [M], which are 1. M counts the tokens of all forward
        passes, one pass after the other.
    """
    where = tf.where(tf.reshape(target_out, [-1]))[:, 0]
    count = tf.size(where)
    padded = tf.pad(where, [[0, -count % TOKEN_MULTIPLE]])
    weights = tf.cast(tf.range(tf.size(padded)) < count, tf.float32)
    tokens = tf.gather(tf.reshape(target_out, [-1]), padded)
    hidden = tf.reshape(hidden, [forward_passes, -1, hidden.shape[-1]])  # [R, B * T, D]
    selected = tf.gather(hidden, padded, axis=1) * weights[:, None]
    return (
        tf.tile(tokens, [forward_passes]),
        tf.reshape(selected, [-1, selected.shape[-1]]),
        tf.tile(weights, [forward_passes]),
    )


def _cross_entropy_function(
    r_drop: float | None, precision: tf.DType
) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    """Return a function that sums over hidden [M, D], table [V, D], tokens [M] and weights [M].

    The function returns three sums: the loss, the cross entropy alone, and the number of reference
    tokens that are the most probable ones. The loss is the cross entropy
    -log softmax(hidden table^T)[tokens] and, with R-Drop, the weighted divergence. Only the loss
    has a gradient.

    The gradient with respect to the logits is softmax - onehot. It is never materialized: the
    softmax is used unchanged, and the onehot becomes a lookup. That saves two passes over [M, V],
    the largest tensor here.
    """

    @tf.custom_gradient
    def cross_entropy_sums(
        hidden: Tensor, table: Tensor, tokens: Tensor, weights: Tensor
    ) -> tuple[tuple[Tensor, Tensor, Tensor], Callable[..., tuple[Tensor | None, ...]]]:
        logits = tf.matmul(hidden, table, transpose_b=True)  # [M, V]
        probabilities = tf.nn.softmax(logits)  # [M, V]
        highest = tf.reduce_max(probabilities, axis=-1)  # [M], at least 1 / V
        normalizer = tf.reduce_max(logits, axis=-1) - tf.math.log(highest)  # [M], log-sum-exp
        reference = tf.gather(logits, tokens, batch_dims=1)  # [M]
        hits = tf.gather(probabilities, tokens, batch_dims=1) >= highest
        cross_entropy = tf.reduce_sum(weights * (normalizer - reference))
        loss, by_logits = cross_entropy, probabilities
        if r_drop is not None:
            divergence, by_divergence = _divergence(logits, probabilities)
            loss += r_drop * divergence
            by_logits += r_drop * by_divergence

        def gradient(by_loss: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
            rounded = tf.cast(by_logits, precision)
            by_hidden = _product(rounded, table) - tf.gather(table, tokens)
            onehot_by_table = tf.math.unsorted_segment_sum(hidden, tokens, tf.shape(table)[0])
            by_table = _product(rounded, hidden, transpose_a=True) - onehot_by_table
            # Rows of weight 0 have hidden 0. They add nothing to by_table, and _target_tokens
            # multiplies their by_hidden with 0.
            return by_loss * by_hidden, by_loss * by_table, None, None

        correct = tf.reduce_sum(weights * tf.cast(hits, tf.float32))
        return (loss, cross_entropy, correct), gradient

    return cross_entropy_sums


def _product(rounded: Tensor, other: Tensor, transpose_a: bool = False) -> Tensor:
    """Multiply in the precision of the first factor; returns float32."""
    other = tf.cast(other, rounded.dtype)
    return tf.cast(tf.matmul(rounded, other, transpose_a=transpose_a), tf.float32)


def _divergence(logits: Tensor, probabilities: Tensor) -> tuple[Tensor, Tensor]:
    """Return the divergence of two forward passes, [], and its gradient by the logits, [M, V].

    Let p and q be the distributions of the two passes and d the difference of their logits. The
    mean of KL(p||q) and KL(q||p) is (p - q) . d / 2, because p - q sums to 0 and the normalizers of
    the logits cancel. Rows with hidden 0 have divergence 0.
    """
    p, q = tf.split(probabilities, 2)
    d = tf.subtract(*tf.split(logits, 2))
    p_d, q_d = p * d, q * d
    by_first = p - q + p_d - p * tf.reduce_sum(p_d, axis=-1, keepdims=True)
    by_second = q - p - q_d + q * tf.reduce_sum(q_d, axis=-1, keepdims=True)
    return tf.reduce_sum(p_d - q_d) / 2, tf.concat([by_first, by_second], axis=0) / 2
