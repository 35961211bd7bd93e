"""Teacher forcing, followed: from a batch to the logits of every position."""

from typing import NamedTuple

import numpy as np

import tfnmt.model
from tfnmt.data.batching.batches import Batch
from tfnmt.model.transformer import Transformer
from tfnmt.tracing.recorder import recording
from tfnmt.tracing.steps import Step, list_steps


class Forward(NamedTuple):
    """What a Transformer makes of a batch."""

    batch: Batch
    steps: list[Step]
    hidden: np.ndarray  # [B, T, D]
    logits: np.ndarray  # [B, T, V]


def follow_forward(transformer: Transformer, batch: Batch) -> Forward:
    """Reads the batch as training does, but that nothing is dropped out."""
    with recording(tfnmt.model) as whole:
        memory, memory_mask = transformer.encode(batch.source)
        hidden = transformer.decode(batch.target_in, memory, memory_mask)
        logits = transformer.logits(hidden)
    return Forward(batch, list_steps(whole, whole), np.asarray(hidden), np.asarray(logits))


class Losses(NamedTuple):
    """What predicting each target token costs, in nats; 0 at padding.

    Training comes to the same sums by a shorter way (`tfnmt.training.loss`).
    """

    logits: np.ndarray  # [B, T, V]
    target: np.ndarray  # [B, T] the right tokens; 0 at padding
    smoothing: float
    log_probs: np.ndarray  # [B, T, V] log softmax of the logits
    wanted: np.ndarray  # [B, T, V] the smoothed distribution, q
    cross_entropy: np.ndarray  # [B, T] -log p(right token)
    smoothed: np.ndarray  # [B, T] -sum q log p: what training adds up
    entropy: np.ndarray  # [B, T] -sum q log q: no model can cost less

    @property
    def real(self) -> np.ndarray:
        """[B, T]: where there is a token."""
        return self.target != 0

    @property
    def slopes(self) -> np.ndarray:
        """[B, T, V]: how fast the smoothed loss grows with each logit, p - q."""
        return (np.exp(self.log_probs) - self.wanted) * self.real[..., None]

    def nudged(self, row: int, position: int, token: int, amount: float) -> "Losses":
        """The losses with so much added to one logit."""
        logits = self.logits.copy()
        logits[row, position, token] += amount
        return measure(logits, self.target, self.smoothing)


def measure(logits: np.ndarray, target: np.ndarray, smoothing: float) -> Losses:
    """The losses of logits [B, T, V] with the right tokens [B, T] (section 5.4)."""
    logits = logits.astype("float64")
    size = logits.shape[-1]
    highest = logits.max(axis=-1, keepdims=True)
    normalizer = highest + np.log(np.exp(logits - highest).sum(axis=-1, keepdims=True))
    log_probs = logits - normalizer
    right = target[..., None]  # [B, T, 1]
    wanted = np.full(logits.shape, smoothing / size)
    np.put_along_axis(wanted, right, 1 - smoothing + smoothing / size, axis=-1)
    real = target != 0
    log_wanted = np.log(np.where(wanted > 0, wanted, 1))  # 0 log 0 is 0
    return Losses(
        logits,
        target,
        smoothing,
        log_probs,
        wanted,
        cross_entropy=-np.take_along_axis(log_probs, right, axis=-1)[..., 0] * real,
        smoothed=-(wanted * log_probs).sum(axis=-1) * real,
        entropy=-(wanted * log_wanted).sum(axis=-1) * real,
    )
