"""Dropout without hidden state: what is dropped is a function of a seed and of the place.

Whoever trains hands the model one seed per step (and replica), and every `Dropout` mixes its own
path into it. So a resumed run drops what the uninterrupted one would have dropped, and no two
layers, steps or replicas drop alike. No seed means no dropout: inference.
"""

import zlib
from typing import Any

import keras
from keras import ops

Tensor = Any


LEVELS = 2**16
"""Of chance: the rate that is asked for is met up to one of them."""


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
        chance = ops.reshape(
            _draw(ops.size(x), seed + ops.array([place, 0], seed.dtype)), ops.shape(x)
        )
        kept = ops.cast(chance >= round(self.rate * LEVELS) - LEVELS // 2, x.dtype)
        return x * (kept * (1 / (1 - self.rate)))


def _draw(count: Tensor, seed: Tensor) -> Tensor:
    """So many whole numbers from -LEVELS / 2 on, below LEVELS / 2.

    Random bits are what dropout costs: a word of them serves two numbers. Keras' dropout takes one.
    """
    shape = ((count + 1) // 2, 1)
    words = keras.random.randint(shape, -(2**31), 2**31 - 1, "int32", _GivenSeed(seed))
    return ops.reshape(ops.view(words, "int16"), (-1,))[:count]


class _GivenSeed(keras.random.SeedGenerator):
    """Keras' random functions ask a generator for their seed; this one answers with a given one."""

    def __init__(self, value: Tensor) -> None:
        # No super().__init__: it would make the variable that this class exists to avoid.
        self._value = value

    def next(self, ordered: bool = True) -> Tensor:
        """The given seed, every time."""
        del ordered
        return self._value
