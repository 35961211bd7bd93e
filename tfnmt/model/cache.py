"""Self-attention key/value cache for incremental decoding with K hypotheses per sentence.

Letters: B batch, K hypotheses per sentence, H heads, D d_model, S source length, R steps that the
cache has room for.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

from keras import ops

from tfnmt.model.layers import Tensor


class KeysValues(NamedTuple):
    """Projected keys and values of one attention layer.

    S positions in cross-attention, R * K cached tokens in self-attention.
    """

    keys: Tensor  # [B, H, S, D/H] or [B, H, R * K, D/H]
    values: Tensor  # the same shape


class KVCache(NamedTuple):
    """Keys and values of the target tokens decoded so far.

    Beam search never moves keys and values. When a hypothesis continues another one, only
    `ancestry` changes.
    """

    ancestry: Tensor  # [B, K, R * K], 1 where the cached token belongs to hypothesis k, else 0
    layers: tuple[KeysValues, ...]  # one item per decoder layer


class CacheLayout(ABC):
    """Defines the initial size of a cache and writes the K new tokens of a step into it."""

    steps: Tensor | int
    """The value of R before the first step."""

    @abstractmethod
    def write(self, cached: Tensor, new: Tensor, position: Tensor) -> Tensor:
        """Add the K entries of one step to the cached ones.

        Args:
            cached: [B, *, R * K, ...], the entries before the step.
            new: [B, *, K, ...], the entries of the step.
            position: Scalar, the number of steps before this one.

        Returns:
            [B, *, R * K, ...], where R is the value after the step.
        """


class DynamicCache(CacheLayout):
    """A cache that grows by one step at a time, so attention never covers empty slots."""

    steps = 0

    def write(self, cached: Tensor, new: Tensor, position: Tensor) -> Tensor:
        """Append the new entries."""
        return ops.concatenate([cached, new], axis=2)


DYNAMIC_CACHE = DynamicCache()
"""The layout for TensorFlow."""


@dataclass(frozen=True)
class StaticCache(CacheLayout):
    """A cache preallocated for a number of steps, so that no shape changes between steps.

    LiteRT needs this. Attention covers unused slots as well and masks them.
    """

    steps: Tensor | int

    def write(self, cached: Tensor, new: Tensor, position: Tensor) -> Tensor:
        """Overwrite the slots of the step at `position`."""
        start = (0, 0, position * new.shape[2], *(0 for _ in new.shape[3:]))
        return ops.slice_update(cached, start, new)
