"""Padded batches of ids for teacher forcing, divided into one shard per replica."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import NamedTuple

import numpy as np

from tfnmt.data.batching.plan import WINDOW, Pairs, Plan
from tfnmt.data.preparation.storage import TokenArray
from tfnmt.data.preparation.tokenizer import BOS, PAD
from tfnmt.runtime.startup import CPU_COUNT

AHEAD = WINDOW
"""Steps prepared in advance, so that the next window is tokenized in time."""


class Batch(NamedTuple):
    """A training batch, padded with 0."""

    source: np.ndarray  # [B, S] tokens, EOS
    target_in: np.ndarray  # [B, T] BOS, tokens
    target_out: np.ndarray  # [B, T] tokens, EOS


class Batches:
    """The batches of a plan by step. They are a pure function, so any step can come first."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def shards(self, step: int, replicas: int) -> list[Batch]:
        """Return the shards of a step. Together they are exactly its batch."""
        pairs, length = self.plan.batch(step)
        return [
            gather(pairs._replace(rows=pairs.rows[number::replicas]), length)
            for number in range(replicas)
        ]

    def since(self, first_step: int, replicas: int) -> Iterator[Batch]:
        """Yield the shards of a step and of all following steps, endlessly.

        AHEAD steps are prepared in the background on all cores.
        """
        steps = count(first_step)
        pool = ThreadPoolExecutor(CPU_COUNT)
        try:
            ahead = deque(pool.submit(self.shards, next(steps), replicas) for _ in range(AHEAD))
            while True:
                ahead.append(pool.submit(self.shards, next(steps), replicas))
                yield from ahead.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def gather(pairs: Pairs, length: int) -> Batch:
    """Gather pairs into a batch with both sides padded to a length.

    Without rows, the batch is one row of padding, which contributes nothing to a summed loss.
    """
    source, target, rows = pairs
    if len(rows) == 0:
        return Batch(*(np.full((1, length), PAD, np.int32) for _ in Batch._fields))
    target_out = _pad(target, rows, length)
    target_in = np.zeros_like(target_out)
    target_in[:, 1:] = target_out[:, :-1]
    # The last token of a sentence is EOS, which the decoder never reads.
    target_in[target_out == PAD] = PAD
    target_in[:, 0] = BOS
    return Batch(_pad(source, rows, length), target_in, target_out)


def _pad(sentences: TokenArray, rows: np.ndarray, length: int) -> np.ndarray:
    """Return sentences as a matrix, [rows, length]."""
    starts = sentences.splits[rows]
    ends = sentences.splits[rows + 1]
    columns = np.arange(length)
    real = columns < (ends - starts)[:, None]  # [rows, length]
    positions = np.where(real, starts[:, None] + columns, 0)
    return np.where(real, sentences.ids[positions], PAD).astype(np.int32)
