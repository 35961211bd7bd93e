"""Token embedding, scaled, whose table can also serve as the output projection (section 3.4)."""

from typing import Any

import keras
from keras import ops

Tensor = Any


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
