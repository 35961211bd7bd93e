"""Position-wise feed-forward network (section 3.3)."""

from typing import Any

import keras

from tfnmt.model.dense import Dense
from tfnmt.model.dropout import Dropout

Tensor = Any


class FeedForward(keras.layers.Layer):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, equation 2: at each position alone."""

    def __init__(
        self, d_model: int, d_ff: int, dropout: float, activation: str, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.d_model = d_model
        self.d_ff = d_ff
        self.inner = Dense(d_ff, activation=activation, name="inner")
        self.outer = Dense(d_model, name="outer")
        self.dropout = Dropout(dropout, name="dropout")

    def build(self, input_shape: Any = None) -> None:
        """Builds both projections."""
        self.inner.build((None, None, self.d_model))
        self.outer.build((None, None, self.d_ff))
        self.dropout.build((None, None, self.d_ff))

    def call(self, x: Tensor, seed: Tensor | None = None) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        return self.outer(self.dropout(self.inner(x), seed))
