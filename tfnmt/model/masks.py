"""Attention masks: boolean, True where a query may attend, broadcastable to [B, H, T, S]."""

from typing import Any

from keras import ops

Tensor = Any


def padding_mask(tokens: Tensor) -> Tensor:
    """True at real tokens: [B, S] ids, 0 at padding -> [B, 1, 1, S]."""
    return ops.not_equal(tokens, 0)[:, None, None, :]


def causal_mask(length: Tensor) -> Tensor:
    """Position t attends to 0 .. t: [1, 1, T, T] (section 3.2.3)."""
    positions = ops.arange(length)
    return (positions[None, :] <= positions[:, None])[None, None]
