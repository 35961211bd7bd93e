"""Forced decoding: what a Transformer makes of a translation that it is given.

Letters: B sentences, S source, T target, V pieces. Ids are int32 and 0 is padding.
"""

from typing import Any

import tensorflow as tf

from tfnmt.data.tokenizer import BOS, PAD
from tfnmt.decoding.output import output_projection
from tfnmt.model.transformer import Attention, Transformer

Tensor = Any


def token_log_probs(transformer: Transformer, source: Tensor, target: Tensor) -> Tensor:
    """The log probability of each piece of a target [B, T], which ends with eos; 0 at padding.

    Their sum over a hypothesis is the log probability that search found for it.
    """
    memory, memory_mask = transformer.encode(source)
    hidden = transformer.decode(shifted(target), memory, memory_mask)
    return _log_probs(transformer, hidden, target)


def attend(transformer: Transformer, source: Tensor, target: Tensor) -> tuple[Tensor, Attention]:
    """The same, and what every head attends to while it predicts each piece."""
    hidden, attention = transformer.attend(source, shifted(target))
    return _log_probs(transformer, hidden, target), attention


def _log_probs(transformer: Transformer, hidden: Tensor, target: Tensor) -> Tensor:
    logits = output_projection(transformer).logits(hidden)  # [B, T, V']
    log_probs = tf.gather(tf.nn.log_softmax(logits), target, batch_dims=2)  # [B, T]
    return tf.where(target == PAD, 0.0, log_probs)


def shifted(target: Tensor) -> Tensor:
    """[B, T] pieces + eos -> bos + pieces: what is read where each piece is predicted.

    An eos stays where padding follows it; no real position looks there.
    """
    begin = tf.fill([tf.shape(target)[0], 1], BOS)
    return tf.concat([begin, target[:, :-1]], axis=1)
