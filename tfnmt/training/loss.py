"""Label-smoothed cross entropy over the target tokens of a batch, without padding (section 5.4)."""

import math
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from tfnmt.model.layers import Tensor

TOKEN_MULTIPLE = 256
"""The number of tokens is padded to a multiple of this, to have fewer different shapes."""


Divergence = Callable[[Tensor, Tensor], tuple[Tensor, list[Tensor]]]
"""A divergence of the predictions of two forward passes: from the logits and probabilities of both,
[2M, V], to its sum, [], and its gradient by the logits of each pass, [M, V]."""


class Consistency(NamedTuple):
    """A loss term that makes the predictions of two forward passes similar."""

    weight: float
    divergence: Divergence
    counted_passes: int  # forward passes whose cross entropy is part of the loss


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
    hidden: Tensor,
    table: Tensor,
    target_out: Tensor,
    smoothing: float,
    consistency: Consistency | None = None,
) -> Sums:
    """Compute the label-smoothed cross entropy, summed over the target tokens.

    The target distribution is `1 - smoothing` at the reference token plus `smoothing / V` at every
    token. Only target tokens get logits, padding does not. With l the logits and y the reference
    token,

        loss = -log softmax(l)[y] + smoothing * (l[y] - mean(l)),

    where l[y] = h . E[y] and mean(l) = h . mean(E) need no pass over the vocabulary.

    Logits and sums are float32. The matrix products of the gradient have the dtype of `hidden`.

    With R-Drop or SimCut, `hidden` has the hidden states of two forward passes, one after the
    other, and the loss includes the weighted divergence of the two predictions. With R-Drop, the
    cross entropy of both passes counts, so each token counts twice. With SimCut, only that of the
    first pass counts.

    Args:
        hidden: Hidden states of the decoder, [B, T, D]; [2B, T, D] with R-Drop and SimCut.
        table: The output embedding, [V, D].
        target_out: Reference ids, [B, T], padded with 0.
        smoothing: The probability that label smoothing spreads over the vocabulary.
        consistency: `r_drop` or `simcut`; None for a single forward pass.

    Returns:
        Sums over the target tokens.
    """
    table = tf.convert_to_tensor(table)
    passes, counted_passes = (2, consistency.counted_passes) if consistency else (1, 1)
    cross_entropy_sums = _cross_entropy_function(consistency, hidden.dtype)
    tokens, hidden, weights = _target_tokens(target_out, tf.cast(hidden, tf.float32), passes)
    tokens, weights = (tf.tile(each, [counted_passes]) for each in (tokens, weights))
    loss, cross_entropy, correct = cross_entropy_sums(hidden, table, tokens, weights)
    counted = hidden[: tf.size(tokens)]  # [M, D]
    reference = tf.reduce_sum(counted * tf.gather(table, tokens), axis=-1)  # [M], l[y]
    mean = tf.linalg.matvec(counted, tf.reduce_mean(table, axis=0))  # [M]
    return Sums(
        loss=loss + smoothing * tf.reduce_sum(reference - mean),
        cross_entropy=cross_entropy,
        correct=correct,
        tokens=tf.reduce_sum(weights),
    )


def r_drop(weight: float) -> Consistency:
    """Return R-Drop (Wu et al., 2021): two passes with different dropout must agree.

    The divergence is the mean of KL(p||q) and KL(q||p), for the predictions p and q of the passes.
    """
    return Consistency(weight, _symmetric_divergence, counted_passes=2)


def simcut(weight: float) -> Consistency:
    """Return SimCut (Gao et al., 2022): the prediction must not depend on a few tokens.

    The divergence is KL(p||q), for the prediction p of the intact input and q of the input with
    token cutoff. Neither is detached: the gradient flows through both, as in the authors' code.
    """
    return Consistency(weight, _divergence, counted_passes=1)


def _target_tokens(
    target_out: Tensor, hidden: Tensor, passes: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Select the M target tokens of a batch, without padding.

    They are padded to a multiple of TOKEN_MULTIPLE, with hidden states and weights of 0 and any
    ids. Kernels that are compiled for a shape are then compiled less often.

    Returns:
        Ids [M], hidden [R * M, D] of all R passes, one after the other, and weights [M], which
        are 1.
    """
    where = tf.where(tf.reshape(target_out, [-1]))[:, 0]
    count = tf.size(where)
    padded = tf.pad(where, [[0, -count % TOKEN_MULTIPLE]])
    weights = tf.cast(tf.range(tf.size(padded)) < count, tf.float32)
    tokens = tf.gather(tf.reshape(target_out, [-1]), padded)
    hidden = tf.reshape(hidden, [passes, -1, hidden.shape[-1]])  # [R, B * T, D]
    selected = tf.gather(hidden, padded, axis=1) * weights[:, None]
    return tokens, tf.reshape(selected, [-1, selected.shape[-1]]), weights


def _cross_entropy_function(
    consistency: Consistency | None, precision: tf.DType
) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    """Return a function that sums over hidden [N, D], table [V, D], tokens [M] and weights [M].

    The function returns three sums: the loss, the cross entropy alone, and the number of reference
    tokens that are the most probable ones. The loss is the cross entropy
    -log softmax(hidden table^T)[tokens] of the first M rows and, with a consistency loss, the
    weighted divergence of the two halves of all rows. Only the loss has a gradient.

    The gradient with respect to the logits is softmax - onehot. It is never materialized: the
    softmax is used unchanged, and the onehot becomes a lookup. That saves two passes over [M, V],
    the largest tensor here.
    """

    @tf.custom_gradient
    def cross_entropy_sums(
        hidden: Tensor, table: Tensor, tokens: Tensor, weights: Tensor
    ) -> tuple[tuple[Tensor, Tensor, Tensor], Callable[..., tuple[Tensor | None, ...]]]:
        logits = tf.matmul(hidden, table, transpose_b=True)  # [N, V]
        probabilities = tf.nn.softmax(logits)  # [N, V]
        count = tf.size(tokens)
        counted, expected = logits[:count], probabilities[:count]  # [M, V]
        highest = tf.reduce_max(expected, axis=-1)  # [M], at least 1 / V
        normalizer = tf.reduce_max(counted, axis=-1) - tf.math.log(highest)  # [M], log-sum-exp
        reference = tf.gather(counted, tokens, batch_dims=1)  # [M]
        hits = tf.gather(expected, tokens, batch_dims=1) >= highest
        cross_entropy = tf.reduce_sum(weights * (normalizer - reference))
        loss, by_logits = cross_entropy, probabilities
        if consistency is not None:
            divergence, by_divergence = consistency.divergence(logits, probabilities)
            loss += consistency.weight * divergence
            by_passes = [consistency.weight * each for each in by_divergence]
            for number in range(consistency.counted_passes):
                by_passes[number] += tf.split(probabilities, 2)[number]
            by_logits = tf.concat(by_passes, axis=0)

        def gradient(by_loss: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
            rounded = tf.cast(by_logits, precision)
            uncounted = tf.shape(hidden)[0] - count
            onehot_by_hidden = tf.pad(tf.gather(table, tokens), [[0, uncounted], [0, 0]])
            by_hidden = _product(rounded, table) - onehot_by_hidden
            onehot_by_table = tf.math.unsorted_segment_sum(
                hidden[:count], tokens, tf.shape(table)[0]
            )
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


# In both divergences, p and q are the distributions of the two passes and d is the difference of
# their logits. Rows with hidden 0 have divergence 0.


def _divergence(logits: Tensor, probabilities: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Return KL(p||q), and its gradient by the logits of each pass.

    It is p . d minus the difference of the logits' normalizers, log-sum-exp.
    """
    p, q = tf.split(probabilities, 2)
    d = tf.subtract(*tf.split(logits, 2))
    p_d = p * d
    mean = tf.reduce_sum(p_d, axis=-1, keepdims=True)  # [M, 1], p . d
    normalizers = tf.subtract(*tf.split(tf.reduce_logsumexp(logits, axis=-1), 2))  # [M]
    return tf.reduce_sum(mean[:, 0] - normalizers), [p_d - p * mean, q - p]


def _symmetric_divergence(logits: Tensor, probabilities: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Return the mean of KL(p||q) and KL(q||p), and its gradient by the logits of each pass.

    It is (p - q) . d / 2, because p - q sums to 0 and the normalizers of the logits cancel.
    """
    p, q = tf.split(probabilities, 2)
    d = tf.subtract(*tf.split(logits, 2))
    p_d, q_d = p * d, q * d
    by_first = p - q + p_d - p * tf.reduce_sum(p_d, axis=-1, keepdims=True)
    by_second = q - p - q_d + q * tf.reduce_sum(q_d, axis=-1, keepdims=True)
    return tf.reduce_sum(p_d - q_d) / 2, [by_first / 2, by_second / 2]
