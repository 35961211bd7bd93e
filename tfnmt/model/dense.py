"""The projections that every sublayer is made of."""

from typing import Any

import keras
from keras import ops

Tensor = Any


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
