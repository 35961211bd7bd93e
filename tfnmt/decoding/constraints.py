"""Which pieces may come next in a translation."""

from typing import Any

import tensorflow as tf

from tfnmt.data.tokenizer import BOS, PAD

Tensor = Any


def without_marks(logits: Tensor) -> Tensor:
    """[..., V] logits with padding and bos impossible: they are never part of a translation."""
    marks = tf.range(tf.shape(logits)[-1])
    return tf.where((marks == PAD) | (marks == BOS), logits.dtype.min, logits)
