"""Masks, scaled dot-product attention and multi-head attention (section 3.2).

Masks are boolean; True means that the query may attend to the key.

Letters: B batch, T query length, S key length, H heads, D d_model, P projections.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from tfnmt.model.layers import Dense, Dropout, Tensor, leading_shape

# --- Masks ----------------------------------------------------------------------------------------


def padding_mask(tokens: Tensor) -> Tensor:
    """Return a mask that is True at real tokens.

    Args:
        tokens: [B, S] ids, 0 at padding.

    Returns:
        [B, 1, 1, S].
    """
    return ops.not_equal(tokens, 0)[:, None, None, :]


def causal_mask(length: Tensor) -> Tensor:
    """Return a mask with which position t attends to positions 0 to t (section 3.2.3).

    Args:
        length: Scalar T.

    Returns:
        [1, 1, T, T].
    """
    positions = ops.arange(length)
    return (positions[None, :] <= positions[:, None])[None, None]


# --- Scaled dot-product attention -----------------------------------------------------------------

MASKED_SCORE = -3e4
"""Attention score of a masked key, in place of minus infinity.

Its softmax weight is 0 in every precision, float16 can represent it, and a row in which every key
is masked stays finite.
"""


def attention_weights(query: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
    """Return softmax(Q K^T / sqrt(d_k)): equation 1 without V (section 3.2.1).

    Args:
        query: [B, H, T, D/H].
        keys: [B, H, S, D/H].
        mask: Broadcastable to [B, H, T, S].

    Returns:
        [B, H, T, S]; each row sums to 1.
    """
    depth = query.shape[-1]
    scores = ops.matmul(query * depth**-0.5, ops.transpose(keys, (0, 1, 3, 2)))  # [B, H, T, S]
    limits = ops.cast(ops.where(mask, np.inf, MASKED_SCORE), scores.dtype)
    # LiteRT has a fast kernel for a minimum, and none for a selection.
    return ops.softmax(ops.minimum(scores, limits), axis=-1)


# --- Heads ----------------------------------------------------------------------------------------


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """Split the last axis into heads: [B, T, D] -> [B, H, T, D/H]."""
    heads = ops.reshape(x, (*leading_shape(x), num_heads, x.shape[-1] // num_heads))
    return ops.transpose(heads, (0, 2, 1, 3))


def merge_heads(x: Tensor) -> Tensor:
    """Concatenate the heads: [B, H, T, D/H] -> [B, T, D], the inverse of `split_heads`."""
    _, num_heads, _, depth = x.shape
    positions = ops.transpose(x, (0, 2, 1, 3))  # [B, T, H, D/H]
    return ops.reshape(positions, (*leading_shape(positions), num_heads * depth))


class FusedProjection(NamedTuple):
    """The weights of P projections with the same input and width, applied as one matrix product.

    One wide product is faster than several narrow ones, and so are its gradients.
    """

    kernel: Tensor  # [D, P * D]
    bias: Tensor  # [P * D]


def fuse_projections(projections: Sequence[Dense]) -> FusedProjection:
    """Concatenate the weights of P projections from D to D, in the compute dtype."""
    weights = zip(*((dense.kernel, dense.bias) for dense in projections), strict=True)
    dtype = projections[0].compute_dtype
    return FusedProjection(*(ops.cast(ops.concatenate(each, axis=-1), dtype) for each in weights))


def project_heads(x: Tensor, fused: FusedProjection, num_heads: int) -> list[Tensor]:
    """Apply P projections and split the results into heads.

    Args:
        x: [B, T, D].
        fused: The weights of the P projections.
        num_heads: H.

    Returns:
        P tensors [B, H, T, D/H].
    """
    width = x.shape[-1]
    count = fused.bias.shape[0] // width
    rows = ops.reshape(x, (-1, width))  # [B * T, D]
    projected = ops.matmul(rows, fused.kernel) + fused.bias  # [B * T, P * D]
    heads = ops.reshape(projected, (*leading_shape(x), count, num_heads, width // num_heads))
    return ops.unstack(ops.transpose(heads, (2, 0, 3, 1, 4)), count)


# --- Layer ----------------------------------------------------------------------------------------


class MultiHeadAttention(keras.layers.Layer):
    """Multi-head attention (section 3.2.2).

        MultiHead(Q, K, V) = Concat(head_1, ..., head_H) W^O
        head_i = softmax(Q W_i^Q (K W_i^K)^T / sqrt(d_k)) V W_i^V

    Keys and values are projected outside of the call, so that decoding computes those of the source
    once. `self_attention` projects queries, keys and values together.

    Args:
        d_model: Width of input and output, D.
        num_heads: H; it must divide `d_model`.
        dropout: Dropout rate of the attention weights.

    Call arguments:
        x: [B, T, D], the queries before their projection.
        keys: [B, H, S, D/H], projected.
        values: [B, H, S, D/H], projected.
        mask: Broadcastable to [B, H, T, S].
        seed: [2], the dropout seed. None turns dropout off.

    Output:
        [B, T, D].
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
        """Create the weights W^Q, W^K, W^V and W^O, each for all heads at once."""
        shape = (None, None, self.d_model)
        for layer in (self.query, self.key, self.value, self.output_projection, self.dropout):
            layer.build(shape)

    def call(
        self, x: Tensor, keys: Tensor, values: Tensor, mask: Tensor, seed: Tensor | None = None
    ) -> Tensor:
        """Attend from x [B, T, D] to projected keys and values [B, H, S, D/H]; return [B, T, D]."""
        return self.attend(split_heads(self.query(x), self.num_heads), keys, values, mask, seed)

    def self_attention(self, x: Tensor, mask: Tensor, seed: Tensor | None = None) -> Tensor:
        """Apply self-attention to x [B, T, D]; return [B, T, D]."""
        query, keys, values = project_heads(x, self.fused_qkv(), self.num_heads)
        return self.attend(query, keys, values, mask, seed)

    def attend(
        self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, seed: Tensor | None = None
    ) -> Tensor:
        """Attend with queries [B, H, T, D/H] that are already projected; return [B, T, D]."""
        weights = self.dropout(attention_weights(query, keys, mask), seed)
        return self.output_projection(merge_heads(ops.matmul(weights, values)))

    def project_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Project x [B, S, D] to the keys and values of all heads, [B, H, S, D/H] each."""
        return split_heads(self.key(x), self.num_heads), split_heads(self.value(x), self.num_heads)

    def fused_qkv(self) -> FusedProjection:
        """Return the fused projection of queries, keys and values."""
        return fuse_projections((self.query, self.key, self.value))

    def self_attention_weights(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return the weights [B, H, T, T] of self-attention of x [B, T, D], for inspection."""
        query, keys, _ = project_heads(x, self.fused_qkv(), self.num_heads)
        return attention_weights(query, keys, mask)

    def attention_weights(self, x: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
        """Return the attention weights of each head, for inspection.

        Args:
            x: [B, T, D], the queries before their projection.
            keys: [B, H, S, D/H], projected.
            mask: Broadcastable to [B, H, T, S].

        Returns:
            [B, H, T, S].
        """
        return attention_weights(split_heads(self.query(x), self.num_heads), keys, mask)
