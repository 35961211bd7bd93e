"""Padded batches of ids for teacher forcing, cut into one shard per replica."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import NamedTuple

import numpy as np

from tfnmt.data.batching.plan import WINDOW, Pairs, Plan
from tfnmt.data.preparation.storage import Sentences
from tfnmt.data.preparation.tokenizer import BOS, PAD
from tfnmt.runtime.startup import PROCESSORS

AHEAD = WINDOW
"""Steps that are made before they are asked for: the next window is drawn in time."""


class Batch(NamedTuple):
    """A training batch; padding is 0."""

    source: np.ndarray  # [B, S] pieces + eos
    target_in: np.ndarray  # [B, T] bos + pieces
    target_out: np.ndarray  # [B, T] pieces + eos


class Batches:
    """The batches of a plan by their steps: a pure function, so any of them can come first."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def shards(self, step: int, replicas: int) -> list[Batch]:
        """The shards of a step, which together are exactly its batch."""
        pairs, length = self.plan.batch(step)
        return [
            gather(pairs._replace(rows=pairs.rows[number::replicas]), length)
            for number in range(replicas)
        ]

    def since(self, first_step: int, replicas: int) -> Iterator[Batch]:
        """The shards of that step and of all that follow, one after another, for ever.

        AHEAD steps are worked on in the background, on all cores.
        """
        steps = count(first_step)
        pool = ThreadPoolExecutor(PROCESSORS)
        try:
            ahead = deque(pool.submit(self.shards, next(steps), replicas) for _ in range(AHEAD))
            while True:
                ahead.append(pool.submit(self.shards, next(steps), replicas))
                yield from ahead.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def gather(pairs: Pairs, length: int) -> Batch:
    """Some pairs, both sides padded to a length.

    Without a row there is one of padding, which weighs nothing in a loss summed over tokens.
    """
    source, target, rows = pairs
    if len(rows) == 0:
        return Batch(*(np.full((1, length), PAD, np.int32) for _ in Batch._fields))
    target_out = _pad(target, rows, length)
    target_in = np.zeros_like(target_out)
    target_in[:, 1:] = target_out[:, :-1]
    # A sentence's own last token is its eos, which the decoder never reads.
    target_in[target_out == PAD] = PAD
    target_in[:, 0] = BOS
    return Batch(_pad(source, rows, length), target_in, target_out)


def _pad(sentences: Sentences, rows: np.ndarray, length: int) -> np.ndarray:
    """Some sentences as a matrix, [rows, length]."""
    starts = sentences.splits[rows]
    ends = sentences.splits[rows + 1]
    columns = np.arange(length)
    real = columns < (ends - starts)[:, None]  # [rows, length]
    positions = np.where(real, starts[:, None] + columns, 0)
    return np.where(real, sentences.ids[positions], PAD).astype(np.int32)
