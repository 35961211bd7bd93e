"""Padded batches of ids for teacher forcing, cut into one shard a replica."""

from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

import numpy as np

from tfnmt.data.plan import Plan
from tfnmt.data.prepared import Prepared, Sentences
from tfnmt.data.tokenizer import BOS, PAD


class Batch(NamedTuple):
    """A training batch; padding is 0."""

    source: np.ndarray  # [B, S] pieces + eos
    target_in: np.ndarray  # [B, T] bos + pieces
    target_out: np.ndarray  # [B, T] pieces + eos


def gather(prepared: Prepared, rows: np.ndarray, length: int) -> Batch:
    """The pairs of some rows, both sides padded to a length.

    Without a row there is one of padding, which weighs nothing in a loss summed over tokens.
    """
    if len(rows) == 0:
        return Batch(*(np.full((1, length), PAD, np.int32) for _ in Batch._fields))
    target_out = _pad(prepared.target, rows, length)
    target_in = np.zeros_like(target_out)
    target_in[:, 1:] = target_out[:, :-1]
    # A sentence's own last token is its eos, which the decoder never reads.
    target_in[target_out == PAD] = PAD
    target_in[:, 0] = BOS
    return Batch(_pad(prepared.source, rows, length), target_in, target_out)


def shards(prepared: Prepared, plan: Plan, first_step: int, replicas: int) -> Iterator[Batch]:
    """The batches from a step on, for ever: `replicas` shards a step, one after another.

    Together the shards of a step are exactly its batch.
    """
    for step in count(first_step):
        batch = plan.batch(step)
        for replica in range(replicas):
            yield gather(prepared, batch.rows[replica::replicas], batch.length)


def _pad(sentences: Sentences, rows: np.ndarray, length: int) -> np.ndarray:
    """Some sentences as a matrix, [rows, length]."""
    starts = sentences.splits[rows]
    ends = sentences.splits[rows + 1]
    columns = np.arange(length)
    real = columns < (ends - starts)[:, None]  # [rows, length]
    positions = np.where(real, starts[:, None] + columns, 0)
    return np.where(real, sentences.ids[positions], PAD).astype(np.int32)
