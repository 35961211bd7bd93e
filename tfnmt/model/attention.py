"""Scaled dot-product and multi-head attention (section 3.2).

Letters: B batch, T queries, S keys, H heads, D d_model.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from tfnmt.model.layers import Dense, Dropout, Tensor, length


def padding_mask(tokens: Tensor) -> Tensor:
    """True at real tokens: [B, S] ids, 0 at padding -> [B, 1, 1, S]."""
    return ops.not_equal(tokens, 0)[:, None, None, :]


def causal_mask(length: Tensor) -> Tensor:
    """Position t attends to 0 .. t: [1, 1, T, T] (section 3.2.3)."""
    positions = ops.arange(length)
    return (positions[None, :] <= positions[:, None])[None, None]


BLOCKED = -3e4
"""Score of a key that is masked out: exp gives 0 in every precision, float16 can hold it, and a row
with no key at all stays finite."""


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """[B, T, D] -> [B, H, T, D/H]."""
    heads = ops.reshape(x, (-1, length(x), num_heads, x.shape[-1] // num_heads))
    return ops.transpose(heads, (0, 2, 1, 3))


class Joined(NamedTuple):
    """Several projections of the same width, from the same input, as one product.

    A product with few columns runs at half the speed of a wide one, and its gradients even slower.
    """

    kernel: Tensor  # [D, P * D], P projections
    bias: Tensor  # [P * D]


def join(projections: Sequence[Dense]) -> Joined:
    """One beside another."""
    weights = zip(*((dense.kernel, dense.bias) for dense in projections), strict=True)
    dtype = projections[0].compute_dtype
    return Joined(*(ops.cast(ops.concatenate(each, axis=-1), dtype) for each in weights))


def project_heads(x: Tensor, joined: Joined, num_heads: int) -> list[Tensor]:
    """[B, T, D] through all of the projections: [B, H, T, D/H] each."""
    width = x.shape[-1]
    count = joined.bias.shape[0] // width
    rows = ops.reshape(x, (-1, width))  # [B * T, D]
    projected = ops.matmul(rows, joined.kernel) + joined.bias  # [B * T, P * D]
    heads = ops.reshape(projected, (-1, length(x), count, num_heads, width // num_heads))
    return ops.unstack(ops.transpose(heads, (2, 0, 3, 1, 4)), count)


def merge_heads(x: Tensor) -> Tensor:
    """[B, H, T, D/H] -> [B, T, D]: undoes `split_heads`."""
    _, num_heads, _, depth = x.shape
    positions = ops.transpose(x, (0, 2, 1, 3))  # [B, T, H, D/H]
    return ops.reshape(positions, (-1, length(positions), num_heads * depth))


def attention_weights(query: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
    """softmax(Q K^T / sqrt(d_k)), equation 1 without V.

    query [B, H, T, D/H], keys [B, H, S, D/H], mask broadcastable to [B, H, T, S]; returns
    [B, H, T, S].
    """
    depth = query.shape[-1]
    scores = ops.matmul(query * depth**-0.5, ops.transpose(keys, (0, 1, 3, 2)))  # [B, H, T, S]
    return ops.softmax(ops.where(mask, scores, ops.cast(BLOCKED, scores.dtype)), axis=-1)


class MultiHeadAttention(keras.layers.Layer):
    """MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O (section 3.2.2).

    Keys and values are projected by `project`, apart from `call`, so that decoding can keep them.
    """

    def __init__(self, d_model: int, num_heads: int, dropout: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.d_model = d_model
        self.query = Dense(d_model, name="query")
        self.key = Dense(d_model, name="key")
        self.value = Dense(d_model, name="value")
        self.output_projection = Dense(d_model, name="output")
        self.dropout = Dropout(dropout, name="dropout")

    def build(self, input_shape: Any = None) -> None:
        """Builds the four projections, W^Q, W^K, W^V and W^O, for all heads at once."""
        shape = (None, None, self.d_model)
        for layer in (self.query, self.key, self.value, self.output_projection, self.dropout):
            layer.build(shape)

    def look_around(self, x: Tensor, mask: Tensor, seed: Tensor | None = None) -> Tensor:
        """Self-attention of a whole text: x [B, T, D] asks and answers, [B, T, D]."""
        query, keys, values = project_heads(x, self.join(), self.num_heads)
        return self.attend(query, keys, values, mask, seed)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of [B, S, D]: [B, H, S, D/H] each."""
        return split_heads(self.key(x), self.num_heads), split_heads(self.value(x), self.num_heads)

    def join(self) -> Joined:
        """The projections of queries, keys and values."""
        return join((self.query, self.key, self.value))

    def call(
        self, x: Tensor, keys: Tensor, values: Tensor, mask: Tensor, seed: Tensor | None = None
    ) -> Tensor:
        """x [B, T, D] asks, keys and values [B, H, S, D/H] answer: [B, T, D]."""
        return self.attend(split_heads(self.query(x), self.num_heads), keys, values, mask, seed)

    def attend(
        self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, seed: Tensor | None = None
    ) -> Tensor:
        """The same, where the query is projected already: [B, H, T, D/H]."""
        weights = self.dropout(attention_weights(query, keys, mask), seed)
        return self.output_projection(merge_heads(ops.matmul(weights, values)))

    def weigh(self, x: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
        """What each head attends to: x [B, T, D], keys [B, H, S, D/H] -> [B, H, T, S]."""
        return attention_weights(split_heads(self.query(x), self.num_heads), keys, mask)
