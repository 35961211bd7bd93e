"""Token embedding, output projection and positional encoding (sections 3.4 and 3.5).

Letters: B batch, T length, D d_model, V vocabulary size.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from tfnmt.model.layers import Tensor


class Embedding(keras.layers.Layer):
    """Scaled token embedding, whose table can also be the output projection (section 3.4).

        embedding = table[token] * sqrt(d_model)
        logits = hidden table^T

    The table is initialized from normal(0, 1/sqrt(d_model)). Both the scaled embeddings and the
    logits then have unit variance. The default initializer of Keras suits neither.

    Args:
        vocab_size: V.
        d_model: Width of an embedding, D.

    Call arguments:
        tokens: Ids of any shape.

    Output:
        A tensor with one more axis, of size D.
    """

    def __init__(self, vocab_size: int, d_model: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.vocab_size = vocab_size
        self.d_model = d_model

    def build(self, input_shape: Any = None) -> None:
        """Create the table, [V, D]."""
        self.table = self.add_weight(
            shape=(self.vocab_size, self.d_model),
            initializer=keras.initializers.RandomNormal(stddev=self.d_model**-0.5),
            name="table",
        )

    def call(self, tokens: Tensor) -> Tensor:
        """Embed ids: [...] -> [..., D]."""
        return ops.take(self.table, tokens, axis=0) * self.d_model**0.5

    def logits(self, hidden: Tensor) -> Tensor:
        """Project hidden states to logits: [..., D] -> [..., V]."""
        return ops.matmul(hidden, ops.transpose(self.table))


def sinusoids(positions: Tensor, d_model: int) -> Tensor:
    """Return the sinusoidal encoding of positions (section 3.5).

        PE(pos, 2i) = sin(pos / 10000^(2i/d_model))
        PE(pos, 2i+1) = cos(pos / 10000^(2i/d_model))

    Args:
        positions: [T] integers; the first position of a sentence is 0.
        d_model: Width of the encoding, D; it must be even.

    Returns:
        [T, D], float32.
    """
    rates = 10000.0 ** (-np.arange(0, d_model, 2) / d_model)  # [D/2]
    angles = ops.expand_dims(ops.cast(positions, "float32"), 1) * ops.convert_to_tensor(
        rates, "float32"
    )
    pairs = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)  # [T, D/2, 2]
    return ops.reshape(pairs, (-1, d_model))
