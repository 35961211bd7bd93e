"""Label-smoothed cross entropy over real tokens (section 5.4)."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

Tensor = Any


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
    hidden: Tensor, table: Tensor, target_out: Tensor, smoothing: float
) -> Sums:
    """The loss of hidden [B, T, D] with the output table [V, D] and target_out [B, T].

    The target distribution is 1 - smoothing at the right token plus smoothing / V everywhere. Only
    real tokens get logits. With l the logits and y the right token,

        loss = -log softmax(l)[y] + smoothing * (l[y] - mean(l)),

    where l[y] = h . E[y] and mean(l) = h . mean(E) need no pass over the vocabulary.
    """
    table = tf.convert_to_tensor(table)
    tokens, hidden, weights = _real_tokens(target_out, hidden)
    cross_entropy, correct = _cross_entropy(hidden, table, tokens, weights)
    right = tf.reduce_sum(hidden * tf.gather(table, tokens), axis=-1)  # [M], l[y]
    mean = tf.linalg.matvec(hidden, tf.reduce_mean(table, axis=0))  # [M]
    return Sums(
        loss=cross_entropy + smoothing * tf.reduce_sum(right - mean),
        cross_entropy=cross_entropy,
        correct=correct,
        tokens=tf.reduce_sum(weights),
    )


def divergence(first: Tensor, second: Tensor, table: Tensor, target_out: Tensor) -> Tensor:
    """How far two readings of a batch are apart: the regularizer of R-Drop (Wu et al., 2021), [].

    first and second are hidden [B, T, D], target_out is [B, T]. With p and q their distributions
    over the vocabulary, the mean of KL(p||q) and KL(q||p), which is (p - q) . (log p - log q) / 2,
    summed over real tokens.
    """
    log_probs = []
    for reading in (first, second):
        _, real, weights = _real_tokens(target_out, reading)
        log_probs.append(tf.nn.log_softmax(tf.matmul(real, table, transpose_b=True)))  # [M, V]
    p, q = log_probs
    apart = tf.reduce_sum((tf.exp(p) - tf.exp(q)) * (p - q), axis=-1)  # [M]
    return tf.reduce_sum(weights * apart) / 2


def _real_tokens(target_out: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The M real tokens of a batch: ids [M], hidden [M, D] and weights [M], which are 1.

    M is filled up to a multiple of GRAIN, with ids, hidden states and weights of 0: kernels that
    are made for a shape need not be made anew for every batch.
    """
    where = tf.where(tf.reshape(target_out, [-1]))[:, 0]
    count = tf.size(where)
    filled = tf.pad(where, [[0, -count % GRAIN]])
    weights = tf.cast(tf.range(tf.size(filled)) < count, tf.float32)
    tokens = tf.gather(tf.reshape(target_out, [-1]), filled)
    hidden = tf.gather(tf.reshape(hidden, [-1, hidden.shape[-1]]), filled)
    return tokens, hidden * weights[:, None], weights


@tf.custom_gradient
def _cross_entropy(
    hidden: Tensor, table: Tensor, tokens: Tensor, weights: Tensor
) -> tuple[tuple[Tensor, Tensor], Callable[..., tuple[Tensor | None, ...]]]:
    """Summed -log softmax(hidden table^T)[tokens], and how often the right token is the likeliest.

    The gradient by the logits is softmax - onehot. It is never built: the softmax is kept as it is
    and the onehot becomes a lookup, which spares two passes over [M, V], the largest tensor here.
    """
    logits = tf.matmul(hidden, table, transpose_b=True)  # [M, V]
    probabilities = tf.nn.softmax(logits)  # [M, V]
    likeliest = tf.reduce_max(probabilities, axis=-1)  # [M], at least 1 / V
    normalizer = tf.reduce_max(logits, axis=-1) - tf.math.log(likeliest)  # [M], log sum exp
    right = tf.gather(logits, tokens, batch_dims=1)  # [M]
    hits = tf.gather(probabilities, tokens, batch_dims=1) >= likeliest

    def gradient(by_loss: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        by_hidden = tf.matmul(probabilities, table) - tf.gather(table, tokens)
        onehot_by_table = tf.math.unsorted_segment_sum(hidden, tokens, tf.shape(table)[0])
        by_table = tf.matmul(probabilities, hidden, transpose_a=True) - onehot_by_table
        # Rows of weight 0 have hidden 0: nothing by the table, and what is by hidden goes nowhere.
        return by_loss * by_hidden, by_loss * by_table, None, None

    loss = tf.reduce_sum(weights * (normalizer - right))
    return (loss, tf.reduce_sum(weights * tf.cast(hits, tf.float32))), gradient
