"""Layer norm in few operations: where few rows are decoded, their number is what a step costs."""

from typing import Any

import keras
from keras import ops

Tensor = Any


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
