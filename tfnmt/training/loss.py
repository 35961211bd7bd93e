"""Label-smoothed cross entropy over real tokens (section 5.4)."""

import math
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from tfnmt.model.layers import Tensor

GRAIN = 256
"""Real tokens are filled up to a multiple of this."""


class Sums(NamedTuple):
    """What a batch comes to, summed over its real tokens; all scalars of float32."""

    loss: Tensor  # label-smoothed cross entropy, nats
    cross_entropy: Tensor  # without smoothing: exp of its mean is the perplexity
    correct: Tensor  # tokens that are also the likeliest
    tokens: Tensor  # real target tokens


def perplexity(cross_entropy: float) -> float:
    """exp of the mean cross entropy; a training that explodes leaves it finite."""
    return math.exp(min(cross_entropy, 100.0))


def smoothed_cross_entropy(
    hidden: Tensor, table: Tensor, target_out: Tensor, smoothing: float, r_drop: float | None = None
) -> Sums:
    """The loss of hidden [B, T, D] with the output table [V, D] and target_out [B, T].

    The target distribution is 1 - smoothing at the right token plus smoothing / V everywhere. Only
    real tokens get logits. With l the logits and y the right token,

        loss = -log softmax(l)[y] + smoothing * (l[y] - mean(l)),

    where l[y] = h . E[y] and mean(l) = h . mean(E) need no pass over the vocabulary.

    Logits and sums are of float32; the products of the gradient are of the type that hidden has.

    With R-Drop (Wu et al., 2021) hidden is [2B, T, D], two readings of the rows one after another.
    A token then counts twice, and the loss has r_drop times their `_divergence` in it.
    """
    table = tf.convert_to_tensor(table)
    readings = 1 if r_drop is None else 2
    summed = _cross_entropy(r_drop, hidden.dtype)
    tokens, hidden, weights = _real_tokens(target_out, tf.cast(hidden, tf.float32), readings)
    loss, cross_entropy, correct = summed(hidden, table, tokens, weights)
    right = tf.reduce_sum(hidden * tf.gather(table, tokens), axis=-1)  # [M], l[y]
    mean = tf.linalg.matvec(hidden, tf.reduce_mean(table, axis=0))  # [M]
    return Sums(
        loss=loss + smoothing * tf.reduce_sum(right - mean),
        cross_entropy=cross_entropy,
        correct=correct,
        tokens=tf.reduce_sum(weights),
    )


def _real_tokens(
    target_out: Tensor, hidden: Tensor, readings: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The M real tokens of a batch: ids [M], hidden [M, D] and weights [M], which are 1.

    A reading's are filled up to a multiple of GRAIN, with hidden states and weights of 0, whatever
    their ids: kernels that are made for a shape need not be made anew for every batch. M is that of
    all readings, one after another.
    """
    where = tf.where(tf.reshape(target_out, [-1]))[:, 0]
    count = tf.size(where)
    filled = tf.pad(where, [[0, -count % GRAIN]])
    weights = tf.cast(tf.range(tf.size(filled)) < count, tf.float32)
    tokens = tf.gather(tf.reshape(target_out, [-1]), filled)
    hidden = tf.reshape(hidden, [readings, -1, hidden.shape[-1]])  # [R, B * T, D]
    real = tf.gather(hidden, filled, axis=1) * weights[:, None]
    return (
        tf.tile(tokens, [readings]),
        tf.reshape(real, [-1, real.shape[-1]]),
        tf.tile(weights, [readings]),
    )


def _cross_entropy(
    r_drop: float | None, precision: tf.DType
) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    """What is summed over hidden [M, D], table [V, D], tokens [M] and weights [M].

    It returns the loss, which is the cross entropy -log softmax(hidden table^T)[tokens] and, with
    R-Drop, the divergence; the cross entropy alone; and how often the right token is the likeliest.
    The loss alone has a gradient.

    The gradient by the logits is softmax - onehot. It is never built: the softmax is kept as it is
    and the onehot becomes a lookup, which spares two passes over [M, V], the largest tensor here.
    """

    @tf.custom_gradient
    def summed(
        hidden: Tensor, table: Tensor, tokens: Tensor, weights: Tensor
    ) -> tuple[tuple[Tensor, Tensor, Tensor], Callable[..., tuple[Tensor | None, ...]]]:
        logits = tf.matmul(hidden, table, transpose_b=True)  # [M, V]
        probabilities = tf.nn.softmax(logits)  # [M, V]
        likeliest = tf.reduce_max(probabilities, axis=-1)  # [M], at least 1 / V
        normalizer = tf.reduce_max(logits, axis=-1) - tf.math.log(likeliest)  # [M], log sum exp
        right = tf.gather(logits, tokens, batch_dims=1)  # [M]
        hits = tf.gather(probabilities, tokens, batch_dims=1) >= likeliest
        cross_entropy = tf.reduce_sum(weights * (normalizer - right))
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
            # Rows of weight 0 have hidden 0: nothing by the table, and what is by hidden goes
            # nowhere.
            return by_loss * by_hidden, by_loss * by_table, None, None

        correct = tf.reduce_sum(weights * tf.cast(hits, tf.float32))
        return (loss, cross_entropy, correct), gradient

    return summed


def _product(rounded: Tensor, other: Tensor, transpose_a: bool = False) -> Tensor:
    """A product in the precision of its first factor, as float32."""
    other = tf.cast(other, rounded.dtype)
    return tf.cast(tf.matmul(rounded, other, transpose_a=transpose_a), tf.float32)


def _divergence(logits: Tensor, probabilities: Tensor) -> tuple[Tensor, Tensor]:
    """How far two readings are apart, [], and its gradient by the logits, [M, V].

    With p and q the readings' distributions and d the difference of their logits, the mean of
    KL(p||q) and KL(q||p) is (p - q) . d / 2, for p - q sums to 0 and what normalizes the logits
    falls out. Rows of hidden 0 have none.
    """
    p, q = tf.split(probabilities, 2)
    d = tf.subtract(*tf.split(logits, 2))
    p_d, q_d = p * d, q * d
    by_first = p - q + p_d - p * tf.reduce_sum(p_d, axis=-1, keepdims=True)
    by_second = q - p - q_d + q * tf.reduce_sum(q_d, axis=-1, keepdims=True)
    return tf.reduce_sum(p_d - q_d) / 2, tf.concat([by_first, by_second], axis=0) / 2
