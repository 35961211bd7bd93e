"""Traces teacher forcing: from a batch to the logits and the loss of every target position.

Letters: B sentences, T target positions, D d_model, V tokens of the vocabulary.
"""

from typing import NamedTuple

import numpy as np

import tfnmt.model
from tfnmt.data.batching.batches import Batch
from tfnmt.model.transformer import Transformer
from tfnmt.runtime.recorder import recording
from tfnmt.tracing.steps import Step, list_steps


class ForwardTrace(NamedTuple):
    """The forward pass of a batch."""

    batch: Batch
    steps: list[Step]
    hidden: np.ndarray  # [B, T, D]
    logits: np.ndarray  # [B, T, V]


def trace_forward(transformer: Transformer, batch: Batch) -> ForwardTrace:
    """Run the forward pass of training without dropout, and record it."""
    with recording(tfnmt.model) as root:
        memory, memory_mask = transformer.encode(batch.source)
        hidden = transformer.decode(batch.target_in, memory, memory_mask)
        logits = transformer.logits(hidden)
    return ForwardTrace(batch, list_steps(root, root), np.asarray(hidden), np.asarray(logits))


class Losses(NamedTuple):
    """The loss of each target token in nats, 0 at padding.

    `tfnmt.training.loss` computes the same sums with fewer operations.
    """

    logits: np.ndarray  # [B, T, V]
    target: np.ndarray  # [B, T] correct ids, 0 at padding
    smoothing: float
    log_probs: np.ndarray  # [B, T, V] log softmax of the logits
    target_probs: np.ndarray  # [B, T, V] smoothed target distribution, q
    cross_entropy: np.ndarray  # [B, T] -log p(correct token)
    smoothed: np.ndarray  # [B, T] -sum q log p, the loss that training sums
    entropy: np.ndarray  # [B, T] -sum q log q, the lower bound of `smoothed`

    @property
    def real(self) -> np.ndarray:
        """[B, T], True at real tokens."""
        return self.target != 0

    @property
    def gradients(self) -> np.ndarray:
        """[B, T, V], the gradient of the smoothed loss with respect to each logit, p - q."""
        return (np.exp(self.log_probs) - self.target_probs) * self.real[..., None]

    def nudged(self, row: int, position: int, token: int, amount: float) -> "Losses":
        """Return the losses after adding an amount to one logit."""
        logits = self.logits.copy()
        logits[row, position, token] += amount
        return compute_losses(logits, self.target, self.smoothing)


def compute_losses(logits: np.ndarray, target: np.ndarray, smoothing: float) -> Losses:
    """Compute the losses from their definition (section 5.4).

    Args:
        logits: [B, T, V].
        target: [B, T] correct ids, 0 at padding.
        smoothing: Epsilon of label smoothing.
    """
    logits = logits.astype("float64")
    size = logits.shape[-1]
    highest = logits.max(axis=-1, keepdims=True)
    normalizer = highest + np.log(np.exp(logits - highest).sum(axis=-1, keepdims=True))
    log_probs = logits - normalizer
    correct = target[..., None]  # [B, T, 1]
    target_probs = np.full(logits.shape, smoothing / size)
    np.put_along_axis(target_probs, correct, 1 - smoothing + smoothing / size, axis=-1)
    real = target != 0
    log_target_probs = np.log(np.where(target_probs > 0, target_probs, 1))  # 0 log 0 is 0
    return Losses(
        logits,
        target,
        smoothing,
        log_probs,
        target_probs,
        cross_entropy=-np.take_along_axis(log_probs, correct, axis=-1)[..., 0] * real,
        smoothed=-(target_probs * log_probs).sum(axis=-1) * real,
        entropy=-(target_probs * log_target_probs).sum(axis=-1) * real,
    )
