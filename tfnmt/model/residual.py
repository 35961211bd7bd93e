"""The connection around every sublayer: residual, dropout and layer norm (sections 3.1 and 5.4)."""

from typing import Any

import keras

from tfnmt.model.dropout import Dropout
from tfnmt.model.norm import LayerNorm

Tensor = Any


class Residual(keras.layers.Layer):
    """Post-norm, the paper's: Norm(x + Dropout(f(x))). Pre-norm: x + Dropout(f(Norm(x))).

    The one place that knows the difference. A sublayer f runs between `enter` and `leave`:

        x = residual.leave(x, f(residual.enter(x)), seed)
    """

    def __init__(
        self, d_model: int, dropout: float, norm_first: bool, norm_epsilon: float, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.d_model = d_model
        self.norm_first = norm_first
        self.norm = LayerNorm(epsilon=norm_epsilon, name="norm")
        self.dropout = Dropout(dropout, name="dropout")

    def build(self, input_shape: Any = None) -> None:
        """Builds the norm."""
        self.norm.build((None, None, self.d_model))
        self.dropout.build((None, None, self.d_model))

    def enter(self, x: Tensor) -> Tensor:
        """What the sublayer reads: [B, T, D]."""
        return self.norm(x) if self.norm_first else x

    def leave(self, x: Tensor, output: Tensor, seed: Tensor | None = None) -> Tensor:
        """What the next sublayer gets: [B, T, D]."""
        total = x + self.dropout(output, seed)
        return total if self.norm_first else self.norm(total)
