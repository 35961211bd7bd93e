"""From hidden states to the pieces that may come next.

Letters: B rows, T positions or hypotheses, D d_model, V pieces, V' the same filled up.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from tfnmt.data.tokenizer import BOS, PAD
from tfnmt.decoding.best import filled_up
from tfnmt.decoding.search import IMPOSSIBLE
from tfnmt.model.transformer import Transformer

Tensor = Any


class OutputProjection(NamedTuple):
    """The output embedding, laid out for many small products with it.

    Padding and bos are never part of a translation: a bias keeps them away, as it does the columns
    that fill the vocabulary up, at no cost of its own.
    """

    kernel: Tensor  # [D, V']
    bias: Tensor  # [V']

    def logits(self, hidden: Tensor) -> Tensor:
        """[B, T, D] -> [B, T, V']."""
        rows = tf.reshape(tf.cast(hidden, tf.float32), [-1, hidden.shape[-1]])
        logits = tf.nn.bias_add(tf.matmul(rows, self.kernel), self.bias)
        return tf.reshape(logits, [-1, tf.shape(hidden)[1], self.bias.shape[0]])


def output_projection(transformer: Transformer) -> OutputProjection:
    """That of a Transformer, as its weights are now."""
    table = tf.convert_to_tensor(transformer.output_embedding.table)  # [V, D]
    size = table.shape[0]
    places = tf.range(filled_up(size))
    possible = (places != PAD) & (places != BOS) & (places < size)
    return OutputProjection(
        kernel=tf.transpose(tf.pad(table, [[0, filled_up(size) - size], [0, 0]])),
        bias=tf.where(possible, 0.0, IMPOSSIBLE),
    )
