"""The projections that every sublayer is made of."""

import zlib
from typing import Any

import keras
from keras import ops

Tensor = Any
"""A tensor of the Keras backend. Neither Keras nor TensorFlow publishes types to check against."""


def length(x: Tensor) -> Tensor:
    """T of [B, T, ...]: a number where it is known, for a tensor costs operations."""
    return ops.shape(x)[1] if x.shape[1] is None else x.shape[1]


class Dense(keras.layers.Dense):
    """f(x W + b) over the last axis, as one plain matrix product.

    Keras' own contracts tensors, which in a graph of unknown sizes takes some twenty operations a
    projection: they cost more than the product where few rows are decoded.
    """

    def call(self, x: Tensor) -> Tensor:
        """[B, T, D] -> [B, T, units]."""
        rows = ops.reshape(x, (-1, x.shape[-1]))  # [B * T, D]
        projected = self.activation(ops.matmul(rows, self.kernel) + self.bias)
        return ops.reshape(projected, (-1, length(x), self.units))


class LayerNorm(keras.layers.LayerNormalization):
    """Keras' layer norm over the last axis: (x - mean) / deviation * gamma + beta, in float32."""

    def call(self, x: Tensor) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        gamma, beta = (ops.cast(weight, "float32") for weight in (self.gamma, self.beta))
        x = ops.cast(x, "float32")
        centred = x - ops.mean(x, axis=-1, keepdims=True)
        variance = ops.mean(ops.square(centred), axis=-1, keepdims=True)  # [B, T, 1]
        normed = centred * ops.rsqrt(variance + self.epsilon)
        return ops.cast(normed * gamma + beta, self.compute_dtype)


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
