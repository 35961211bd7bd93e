"""Layer norm, with a gradient that takes half as many passes as the one found by itself."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

Tensor = Any


class LayerNorm(keras.layers.LayerNormalization):
    """Keras' layer norm over the last axis; in training with a gradient written by hand.

    Elsewhere it is Keras' own: an exported graph keeps no gradients.
    """

    def call(self, x: Tensor, training: bool = False) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        if not training:
            return super().call(x)
        gain, bias = (ops.cast(weight, "float32") for weight in (self.gamma, self.beta))
        normed = _trained(self.epsilon)(ops.cast(x, "float32"), gain, bias)
        return ops.cast(normed, self.compute_dtype)


def _trained(epsilon: float) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """(x - mean) / deviation * gain + bias, and how to go back in few passes.

    With h = (x - mean) / deviation and d = gain * (gradient by the output), the gradient by x is
    (d - mean(d) - h * mean(d * h)) / deviation.
    """

    @ops.custom_gradient
    def normalize(x: Tensor, gain: Tensor, bias: Tensor) -> tuple[Tensor, Callable[..., Any]]:
        centred = x - ops.mean(x, axis=-1, keepdims=True)
        variance = ops.mean(ops.square(centred), axis=-1, keepdims=True)
        inverse = ops.rsqrt(variance + epsilon)  # [B, T, 1]
        h = centred * inverse

        def gradient(by_output: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            d = by_output * gain
            mean = ops.mean(d, axis=-1, keepdims=True)
            along = ops.mean(d * h, axis=-1, keepdims=True)
            by_x = (d - mean - h * along) * inverse
            return by_x, _over_rows(by_output * h), _over_rows(by_output)

        return h * gain + bias, gradient

    return normalize


def _over_rows(x: Tensor) -> Tensor:
    """[B, T, D] -> [D], summed."""
    return ops.sum(ops.reshape(x, (-1, x.shape[-1])), axis=0)
