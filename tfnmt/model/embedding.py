"""Token embedding, scaled, whose table can also serve as the output projection (section 3.4)."""

from typing import Any

import keras
import numpy as np
from keras import ops

from tfnmt.model.layers import Tensor


class Embedding(keras.layers.Layer):
    """x = table[token] * sqrt(d_model), and back: logits = hidden . table^T.

    The table is drawn from normal(0, 1/sqrt(d_model)): scaled, an embedding has unit variance, and
    as an output projection the table gives logits of unit variance. Keras' default fits neither.
    """

    def __init__(self, vocab_size: int, d_model: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.vocab_size = vocab_size
        self.d_model = d_model

    def build(self, input_shape: Any = None) -> None:
        """Makes the table, [V, D]."""
        self.table = self.add_weight(
            shape=(self.vocab_size, self.d_model),
            initializer=keras.initializers.RandomNormal(stddev=self.d_model**-0.5),
            name="table",
        )

    def call(self, tokens: Tensor) -> Tensor:
        """[...] ids -> [..., D]."""
        return ops.take(self.table, tokens, axis=0) * self.d_model**0.5

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., D] -> [..., V]."""
        return ops.matmul(hidden, ops.transpose(self.table))


def sinusoids(positions: Tensor, d_model: int) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos(the same).

    Positions are [T] whole numbers from 0; returns [T, d_model].
    """
    rates = 10000.0 ** (-np.arange(0, d_model, 2) / d_model)  # [D/2]
    angles = ops.cast(positions, "float32")[:, None] * ops.convert_to_tensor(rates, "float32")
    pairs = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)  # [T, D/2, 2]
    return ops.reshape(pairs, (-1, d_model))
