"""The best of many numbers: a beam wants few pieces of a large vocabulary.

Letters: N rows, V pieces, k the few.
"""

from typing import Any

import tensorflow as tf

Tensor = Any

BLOCK = 32
"""Numbers that are looked at together: about the square root of a vocabulary over k."""


def filled_up(size: int) -> int:
    """The next multiple of BLOCK: `top_k` takes its short way for nothing else."""
    return -(-size // BLOCK) * BLOCK


def top_k(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each row and where they are, best first: [N, V] -> [N, k] and [N, k].

    All of them are in those k blocks whose largest numbers are largest: finding these first takes
    one pass and not a sort. Of equal numbers any may be taken.
    """
    size = x.shape[1]
    if size % BLOCK or size < k * BLOCK:
        return tf.math.top_k(x, k)
    blocks = tf.reshape(x, [-1, size // BLOCK, BLOCK])
    _, chosen = tf.math.top_k(tf.reduce_max(blocks, axis=2), k)  # [N, k]
    few = tf.reshape(tf.gather(blocks, chosen, batch_dims=1), [-1, k * BLOCK])
    best, where = tf.math.top_k(few, k)  # [N, k]
    block = tf.gather(chosen, where // BLOCK, batch_dims=1)
    return best, block * BLOCK + where % BLOCK


def normalizer(logits: Tensor) -> Tensor:
    """log sum exp of each row, [N, V] -> [N, 1]: what makes log probabilities of logits.

    The plain sum in two passes less than softmax and its largest; nothing overflows.
    """
    largest = tf.reduce_max(logits, axis=1, keepdims=True)
    shares = tf.exp(logits - largest)  # of the likeliest piece's probability
    return largest + tf.math.log(tf.reduce_sum(shares, axis=1, keepdims=True))
