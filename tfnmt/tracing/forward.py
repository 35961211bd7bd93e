"""Teacher forcing, followed: from a batch to the logits of every position."""

from typing import NamedTuple

import numpy as np

import tfnmt.model
from tfnmt.data.batches import Batch
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
