"""Flash attention (Dao et al., 2022): attention whose memory grows linearly with the length.

It reads the keys in blocks. An online softmax combines the blocks, so the weights of all keys never
exist at once. The backward pass computes the weights of each block again, with the same dropout
mask.

Letters: B batch, T query length, S key length, H heads, D d_model, N blocks, K keys per block.
"""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from tfnmt.model.attention import MASKED_SCORE, MultiHeadAttention, merge_heads
from tfnmt.model.layers import Tensor

MAX_BLOCK = 128
"""The largest K. Larger blocks need more memory, and smaller ones more time."""

BLOCK_SEED = 65_537
"""Separates the dropout seeds of blocks (added to the run's seed). Small, because seeds that
overflow give other numbers with XLA than without."""

DropoutMask = Callable[[Any, Tensor], Tensor]
"""Returns the scaled dropout mask of a block: (shape, number of the block) -> mask."""


class FlashAttention(MultiHeadAttention):
    """Multi-head attention that needs linear memory in training, with the weights of its parent.

    Without a seed, which means outside of training, it computes the same as its parent.
    """

    def attend(
        self,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None,
        seed: Tensor | None = None,
    ) -> Tensor:
        """Attend with projected queries [B, H, T, D/H]; return [B, T, D].

        In training, a mask of None is the causal mask. It would need quadratic memory.
        """
        if seed is None:
            return super().attend(query, keys, values, mask)
        if self.dropout.rate == 0 and _has_kernel(query):
            return self.output_projection(_kernel(query, keys, values, mask))
        dropout_mask = None if self.dropout.rate == 0 else self._dropout_mask(seed)
        query = query * query.shape[-1] ** -0.5
        return self.output_projection(
            merge_heads(flash_attention(query, keys, values, mask, dropout_mask))
        )

    def _dropout_mask(self, seed: Tensor) -> DropoutMask:
        def mask(shape: Any, block: Tensor) -> Tensor:
            offset = ops.stack([block * BLOCK_SEED, ops.zeros_like(block)])
            return self.dropout.mask(shape, "float32", seed + ops.cast(offset, seed.dtype))

        return mask


def flash_attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    dropout_mask: DropoutMask | None = None,
) -> Tensor:
    """Return softmax(Q K^T) V without the whole matrix of weights.

    Args:
        query: [B, H, T, D/H], scaled by 1 / sqrt(D/H).
        keys: [B, H, S, D/H].
        values: [B, H, S, D/H].
        mask: Broadcastable to [B, H, T, S], with all axes and the length S. None is the causal
            mask.
        dropout_mask: Returns the scaled dropout mask of a block. None turns dropout off.

    Returns:
        [B, H, T, D/H].
    """

    @ops.custom_gradient
    def attend(
        query: Tensor, keys: Tensor, values: Tensor
    ) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]]:
        tiles = _Tiles(query, keys, values, mask, dropout_mask)
        output, highest, total = tiles.attend()
        return output, lambda by_output: tiles.gradients(by_output, output, highest, total)

    result: Tensor = attend(query, keys, values)
    return result


class _Tiles:
    """The attention of all queries to one block of keys at a time.

    Scores, their softmax and all sums are float32. The products have the dtype of the queries.

    All blocks have the same size K. So the last one may begin with keys of the block before. They
    get no weight there.
    """

    def __init__(
        self,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None,
        dropout_mask: DropoutMask | None,
    ) -> None:
        self.query = query
        self.keys = keys
        self.values = values
        self.mask = mask
        self.dropout_mask = dropout_mask
        self.length = ops.shape(keys)[2]  # S
        self.blocks = -(-self.length // MAX_BLOCK)  # N
        self.size = -(-self.length // self.blocks)  # K

    def attend(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the output [B, H, T, D/H], and two numbers of each query, [B, H, T, 1].

        They are its highest score, and its sum of exp(score - highest). The log of the sum of all
        exp(score) would round the small weights of a query whose keys are all masked.
        """

        def add(
            block: Tensor, output: Tensor, highest: Tensor, total: Tensor
        ) -> tuple[Tensor, Tensor, Tensor]:
            scores, _ = self._scores(block)
            higher = ops.maximum(highest, ops.max(scores, axis=-1, keepdims=True))
            weights, shrink = ops.exp(scores - higher), ops.exp(highest - higher)
            added = self._product(self._drop(weights, block), self._slice(self.values, 2, block))
            total = total * shrink + ops.sum(weights, axis=-1, keepdims=True)
            return output * shrink + added, higher, total

        column = ops.cast(self.query[..., :1], "float32")
        start = (_zeros(self.query), ops.full_like(column, -np.inf), ops.zeros_like(column))
        output, highest, total = self._for_each_block(add, start, self.query)
        return ops.cast(output / total, self.query.dtype), highest, total

    def gradients(
        self, by_output: Tensor, output: Tensor, highest: Tensor, total: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients by queries, keys and values, from the results of `attend`."""
        # The mean of the gradient by the weights, weighted with the weights (the paper's D).
        products = ops.cast(by_output, "float32") * ops.cast(output, "float32")
        mean = ops.sum(products, axis=-1, keepdims=True)

        def add(
            block: Tensor, by_query: Tensor, by_keys: Tensor, by_values: Tensor
        ) -> tuple[Tensor, Tensor, Tensor]:
            keys, values = (self._slice(each, 2, block) for each in (self.keys, self.values))
            scores, mask = self._scores(block)
            weights = ops.exp(scores - highest) / total
            of_values = self._product(_transpose(self._drop(weights, block)), by_output)
            by_weights = self._drop(self._product(by_output, _transpose(values)), block)
            by_scores = ops.where(mask, weights * (by_weights - mean), 0.0)
            of_keys = self._product(_transpose(by_scores), self.query)
            by_query = by_query + self._product(by_scores, keys)
            return (
                by_query,
                _replace(by_keys, block, of_keys),
                _replace(by_values, block, of_values),
            )

        keys, values = (
            ops.zeros((self.blocks, *ops.shape(self._slice(each, 2, 0))), each.dtype)
            for each in (self.keys, self.values)
        )
        by_query, by_keys, by_values = self._for_each_block(
            add, (_zeros(self.query), keys, values), by_output
        )
        return ops.cast(by_query, self.query.dtype), self._join(by_keys), self._join(by_values)

    def _scores(self, block: Tensor) -> tuple[Tensor, Tensor]:
        """Return the masked scores [B, H, T, K] of a block, and its mask."""
        positions = self._start(block) + ops.arange(self.size)  # [K]
        if self.mask is None:
            mask = positions <= ops.arange(ops.shape(self.query)[2])[:, None]  # [T, K]
        else:
            mask = self._slice(self.mask, 3, block)
        # Minus infinity for keys of the block before, because they get no weight even if all keys
        # are masked.
        is_new = positions >= block * self.size
        masked = ops.cast(ops.where(is_new, MASKED_SCORE, -np.inf), "float32")
        mask = ops.logical_and(mask, is_new)
        scores = self._product(self.query, _transpose(self._slice(self.keys, 2, block)))
        return ops.where(mask, scores, masked), mask

    def _drop(self, weights: Tensor, block: Tensor) -> Tensor:
        """Apply dropout to [B, H, T, K] of a block, with the same mask in every call."""
        if self.dropout_mask is None:
            return weights
        return weights * self.dropout_mask(ops.shape(weights), block)

    def _product(self, left: Tensor, right: Tensor) -> Tensor:
        """Multiply in the dtype of the queries; return float32."""
        dtype = self.query.dtype
        return ops.cast(ops.matmul(ops.cast(left, dtype), ops.cast(right, dtype)), "float32")

    def _for_each_block(
        self, add: Callable[..., tuple[Tensor, ...]], start: tuple[Tensor, ...], after: Tensor
    ) -> tuple[Tensor, ...]:
        """Call `add(block, *values)` for each block; return the last values.

        TensorFlow would compute the scores of ten blocks at once, and those of a backward pass
        already in the forward pass. So each number of a block waits: the first one for the tensor
        `after`, the others for the first value of the block before.
        """

        def step(block: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
            values = add(block, *values)
            return _wait(block + 1, values[0]), *values

        first = _wait(ops.convert_to_tensor(0), after)
        result = ops.while_loop(lambda block, *_: block < self.blocks, step, (first, *start))
        return tuple(result[1:])

    def _start(self, block: Tensor) -> Tensor:
        """Return the position of the first key of a block."""
        return ops.minimum(block * self.size, self.length - self.size)

    def _slice(self, x: Tensor, axis: int, block: Tensor) -> Tensor:
        """Return a block of an axis of length S."""
        start, shape = [0] * 4, list(ops.shape(x))
        start[axis], shape[axis] = self._start(block), self.size
        return ops.slice(x, start, shape)

    def _join(self, blocks: Tensor) -> Tensor:
        """Join the gradients of all blocks: [N, B, H, K, D/H] -> [B, H, S, D/H]."""
        _, rows, heads, _, depth = ops.shape(blocks)
        joined = ops.reshape(ops.moveaxis(blocks, 0, 2), (rows, heads, -1, depth))
        repeated = self.blocks * self.size - self.length  # keys at the start of the last block
        before = (self.blocks - 1) * self.size
        return ops.concatenate([joined[:, :, :before], joined[:, :, before + repeated :]], axis=2)


def _wait(number: Tensor, x: Tensor) -> Tensor:
    """Return a number as soon as x [B, H, T, D/H] is computed."""
    return number + 0 * ops.cast(ops.isnan(x[0, 0, 0, 0]), "int32")


def _zeros(x: Tensor) -> Tensor:
    return ops.zeros_like(x, dtype="float32")


def _transpose(x: Tensor) -> Tensor:
    """Swap the last two axes of [B, H, ., .]."""
    return ops.transpose(x, (0, 1, 3, 2))


def _replace(blocks: Tensor, block: Tensor, new: Tensor) -> Tensor:
    """Return blocks [N, ...] in which one has other values."""
    return ops.scatter_update(blocks, ops.reshape(block, (1, 1)), ops.cast(new, blocks.dtype)[None])


def _has_kernel(query: Tensor) -> bool:
    """Return whether the Keras backend has a kernel for flash attention: JAX on a GPU."""
    return (
        keras.backend.backend() == "jax"
        and keras.backend.standardize_dtype(query.dtype) in ("bfloat16", "float16")
        and any(name.startswith("gpu") for name in keras.distribution.list_devices())
    )


def _kernel(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Compute attention [B, T, D] with the kernel of the backend, which has no dropout."""
    by_position = [ops.transpose(x, (0, 2, 1, 3)) for x in (query, keys, values)]
    output = ops.dot_product_attention(
        *by_position, mask=mask, is_causal=mask is None, flash_attention=True
    )
    return ops.reshape(output, (*ops.shape(output)[:2], -1))
