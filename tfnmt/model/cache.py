"""What a decoder remembers of the target that it has read, in a search of K tokens a step.

Letters: B sentences, K hypotheses (beams) of each, H heads, D d_model, S source, R steps that there
is room for.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

from keras import ops

from tfnmt.model.layers import Tensor


class KeysValues(NamedTuple):
    """What an attention layer attends to: of the memory, or of what was read of the target."""

    keys: Tensor  # [B, H, S, D/H] or [B, H, R * K, D/H]
    values: Tensor  # the same


class Cache(NamedTuple):
    """What was read of the target: K tokens a step.

    Keys and values stay where they are: where hypotheses go on from others, only `own` changes.
    """

    own: Tensor  # [B, K, R * K], 1 where hypothesis k has a token in its past, else 0
    layers: tuple[KeysValues, ...]


class Room(ABC):
    """How much a cache has room for, and how K tokens are put into it."""

    steps: Tensor | int
    """R, where a search begins."""

    @abstractmethod
    def put(self, past: Tensor, new: Tensor, position: Tensor) -> Tensor:
        """[B, *, R * K, ...] of before and [B, *, K, ...] of a step -> [B, *, R * K, ...]."""


class Growing(Room):
    """Room for what was read and nothing else: nothing is attended to in vain."""

    steps = 0

    def put(self, past: Tensor, new: Tensor, position: Tensor) -> Tensor:
        """Behind what is there."""
        return ops.concatenate([past, new], axis=2)


GROWING = Growing()


@dataclass(frozen=True)
class Bounded(Room):
    """Room for so many steps from the beginning: every step has the same shapes.

    That is what a compiler asks for. Each step attends to all of it, what is empty being masked.
    """

    steps: Tensor | int

    def put(self, past: Tensor, new: Tensor, position: Tensor) -> Tensor:
        """Into the place of a step."""
        begin = (0, 0, position * new.shape[2], *(0 for _ in new.shape[3:]))
        return ops.slice_update(past, begin, new)
