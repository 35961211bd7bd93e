"""The basic layers of every sublayer: projection, layer normalization and dropout.

They compute the same as the Keras layers of the same names, with fewer operations. `Dropout` also
takes its random seed as an argument.

Letters: B batch, T length, D d_model.
"""

import math
import zlib
from typing import Any

import keras
from keras import ops

Tensor = Any
"""A tensor of the Keras backend. Neither Keras nor TensorFlow publishes types to check against."""


def leading_shape(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return B and T of x [B, T, ...] for a reshape, where -1 stands for one unknown size.

    Sizes are `int` if they are known statically, because tensors cost operations.
    """
    batch, length = x.shape[:2]
    if batch is None:
        return -1, ops.shape(x)[1] if length is None else length
    return batch, -1 if length is None else length


class Dense(keras.layers.Dense):
    """Projection f(x W + b) over the last axis, computed as one matrix product.

    The Keras layer contracts tensors, which takes about twenty operations per projection in a graph
    with unknown sizes. When few rows are decoded, they cost more than the product.

    The arguments are those of `keras.layers.Dense`.

    Call arguments:
        x: [B, T, D].

    Output:
        [B, T, units].
    """

    def call(self, x: Tensor) -> Tensor:
        """Project x [B, T, D] to [B, T, units]."""
        rows = ops.reshape(x, (-1, x.shape[-1]))  # [B * T, D]
        projected = self.activation(ops.matmul(rows, self.kernel) + self.bias)
        return ops.reshape(projected, (*leading_shape(x), self.units))


class LayerNorm(keras.layers.LayerNormalization):
    """Layer normalization over the last axis (section 3.1), computed in float32.

        y = (x - mean) / sqrt(variance + epsilon) * gamma + beta

    The arguments are those of `keras.layers.LayerNormalization`.

    Call arguments:
        x: [B, T, D].

    Output:
        [B, T, D].
    """

    def call(self, x: Tensor) -> Tensor:
        """Normalize x [B, T, D]; the shape stays the same."""
        gamma, beta = (ops.cast(weight, "float32") for weight in (self.gamma, self.beta))
        x = ops.cast(x, "float32")
        centered = x - ops.mean(x, axis=-1, keepdims=True)
        variance = ops.mean(ops.square(centered), axis=-1, keepdims=True)  # [B, T, 1]
        normalized = centered * ops.rsqrt(variance + self.epsilon)
        return ops.cast(normalized * gamma + beta, self.compute_dtype)


# --- Dropout --------------------------------------------------------------------------------------

RANDOM_LEVELS = 2**16
"""Distinct random values per element. Rates are rounded to multiples of 1 / RANDOM_LEVELS."""


class Dropout(keras.layers.Layer):
    """Dropout whose random seed is an argument of the call (section 5.4).

    It sets a share `rate` of the elements to zero and multiplies the others by 1 / (1 - rate). The
    dropout mask is a function of the seed and of the path of the layer. Renaming a layer therefore
    changes the random numbers of a training run.

    Args:
        rate: Share of elements to drop, 0 or greater and less than 1.

    Call arguments:
        x: A tensor of any shape.
        seed: [2], integers. None turns dropout off.

    Output:
        A tensor of the shape of x.
    """

    def __init__(self, rate: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rate = rate

    def call(self, x: Tensor, seed: Tensor | None = None) -> Tensor:
        """Drop elements of x, of any shape; return x unchanged if `seed` is None."""
        if seed is None or self.rate == 0:
            return x
        return x * self.mask(ops.shape(x), x.dtype, seed)

    def mask(self, shape: Any, dtype: Any, seed: Tensor) -> Tensor:
        """Return the dropout mask of a shape, multiplied by 1 / (1 - rate)."""
        return self.kept(shape, dtype, seed) * (1 / (1 - self.rate))

    def kept(self, shape: Any, dtype: Any, seed: Tensor) -> Tensor:
        """Return 0 for a share `rate` of the elements, and 1 for the others."""
        layer_id = zlib.crc32(self.path.encode()) % 2**31
        layer_seed = seed + ops.array([layer_id, 0], seed.dtype)
        numbers = ops.reshape(_random_int16(math.prod(shape), layer_seed), shape)
        threshold = round(self.rate * RANDOM_LEVELS) - RANDOM_LEVELS // 2
        return ops.cast(numbers >= threshold, dtype)


def _random_int16(count: Tensor, seed: Tensor) -> Tensor:
    """Return `count` uniform random integers from the whole range of int16.

    Generating random bits takes most of the time of dropout. Each random int32 therefore yields two
    numbers; the dropout of Keras uses one per element.
    """
    shape = ((count + 1) // 2, 1)
    words = keras.random.randint(shape, -(2**31), 2**31 - 1, "int32", _FixedSeed(seed))
    return ops.reshape(ops.view(words, "int16"), (-1,))[:count]


class _FixedSeed(keras.random.SeedGenerator):
    """Passes a seed tensor to the random functions of Keras, which take seeds from a generator."""

    def __init__(self, value: Tensor) -> None:
        # No super().__init__: it would create the variable that this class exists to avoid.
        self._value = value

    def next(self, ordered: bool = True) -> Tensor:
        """Return the given seed at every call."""
        del ordered
        return self._value
