"""Dropout without hidden state: what is dropped is a function of a seed and of the place.

Whoever trains hands the model one seed a step (and replica), and every `Dropout` mixes its own path
into it. So a resumed run drops what the uninterrupted one would have dropped, and no two layers,
steps or replicas drop alike. No seed means no dropout: inference.
"""

import zlib
from typing import Any

import keras
from keras import ops

Tensor = Any


class Dropout(keras.layers.Layer):
    """Sets a share `rate` of the input to zero and scales the rest by 1 / (1 - rate)."""

    def __init__(self, rate: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rate = rate

    def call(self, x: Tensor, seed: Tensor | None = None) -> Tensor:
        """`seed` is [2] whole numbers, or None to drop nothing; any shape in, the same out."""
        if seed is None or self.rate == 0:
            return x
        place = zlib.crc32(self.path.encode()) % 2**31
        return keras.random.dropout(x, self.rate, seed=_GivenSeed(seed + ops.array([place, 0])))


class _GivenSeed(keras.random.SeedGenerator):
    """Keras' random functions ask a generator for their seed; this one answers with a given one."""

    def __init__(self, value: Tensor) -> None:
        # No super().__init__: it would make the variable that this class exists to avoid.
        self._value = value

    def next(self, ordered: bool = True) -> Tensor:
        """The given seed, every time."""
        del ordered
        return self._value
