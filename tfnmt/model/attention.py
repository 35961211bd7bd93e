"""Scaled dot-product and multi-head attention (section 3.2).

Letters: B batch, T queries, S keys, H heads, D d_model.
"""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from tfnmt.model.dense import Dense, length
from tfnmt.model.dropout import Dropout

Tensor = Any

BLOCKED = -3e4
"""Score of a key that is masked out: exp gives 0 in every precision, float16 can hold it, and a row
with no key at all stays finite."""


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """[B, T, D] -> [B, H, T, D/H]."""
    heads = ops.reshape(x, (-1, length(x), num_heads, x.shape[-1] // num_heads))
    return ops.transpose(heads, (0, 2, 1, 3))


def project_heads(x: Tensor, projections: Sequence[Dense], num_heads: int) -> list[Tensor]:
    """[B, T, D] through several projections, by one product: [B, H, T, D/H] each.

    A product with few columns runs at half the speed of a wide one, and its gradients even slower.
    """
    kernel, bias = (
        ops.concatenate([ops.cast(weight, x.dtype) for weight in weights], axis=-1)
        for weights in zip(*((dense.kernel, dense.bias) for dense in projections), strict=True)
    )
    rows = ops.reshape(x, (-1, x.shape[-1]))  # [B * T, D]
    projected = ops.matmul(rows, kernel) + bias  # [B * T, P * D], P projections
    count, depth = len(projections), projections[0].units // num_heads
    heads = ops.reshape(projected, (-1, length(x), count, num_heads, depth))
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
        projections = (self.query, self.key, self.value)
        query, keys, values = project_heads(x, projections, self.num_heads)
        return self._answer(attention_weights(query, keys, mask), values, seed)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of [B, S, D]: [B, H, S, D/H] each."""
        return split_heads(self.key(x), self.num_heads), split_heads(self.value(x), self.num_heads)

    def call(
        self, x: Tensor, keys: Tensor, values: Tensor, mask: Tensor, seed: Tensor | None = None
    ) -> Tensor:
        """x [B, T, D] asks, keys and values [B, H, S, D/H] answer: [B, T, D]."""
        return self._answer(self.weigh(x, keys, mask), values, seed)

    def weigh(self, x: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
        """What each head attends to: x [B, T, D], keys [B, H, S, D/H] -> [B, H, T, S]."""
        return attention_weights(split_heads(self.query(x), self.num_heads), keys, mask)

    def _answer(self, weights: Tensor, values: Tensor, seed: Tensor | None) -> Tensor:
        """weights [B, H, T, S], values [B, H, S, D/H] -> [B, T, D]."""
        weights = self.dropout(weights, seed)
        return self.output_projection(merge_heads(ops.matmul(weights, values)))
