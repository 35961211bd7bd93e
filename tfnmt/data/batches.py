"""Padded batches of ids for teacher forcing, cut into one shard a replica."""

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

import numpy as np

from tfnmt.data.plan import Plan, padded_lengths
from tfnmt.data.prepared import Prepared
from tfnmt.data.sentences import Lines, Sentences
from tfnmt.data.tokenizer import BOS, PAD


class Batch(NamedTuple):
    """A training batch; padding is 0."""

    source: np.ndarray  # [B, S] pieces + eos
    target_in: np.ndarray  # [B, T] bos + pieces
    target_out: np.ndarray  # [B, T] pieces + eos


@dataclass(frozen=True)
class Batches:
    """The batches of a training by their steps: a pure function, so any of them can come first."""

    prepared: Prepared
    plan: Plan
    bpe_dropout: float
    seed: int

    def shards(self, step: int, replicas: int) -> list[Batch]:
        """The shards of a step, which together are exactly its batch."""
        batch = self.plan.batch(step)
        if self.bpe_dropout == 0:
            source, target, rows = self.prepared.source, self.prepared.target, batch.rows
            length = batch.length
        else:
            source, target = self._draw(batch.rows, step)
            rows = np.arange(len(batch.rows))
            length = _padded_length(source, target)
        return [gather(source, target, rows[n::replicas], length) for n in range(replicas)]

    def since(self, first_step: int, replicas: int) -> Iterator[Batch]:
        """The shards of that step and of all that follow, one after another, for ever.

        Some steps ahead are worked on in the background, on all cores.
        """
        workers = len(os.sched_getaffinity(0))
        steps = count(first_step)
        with ThreadPoolExecutor(workers) as pool:
            ahead = deque(pool.submit(self.shards, next(steps), replicas) for _ in range(workers))
            while True:
                ahead.append(pool.submit(self.shards, next(steps), replicas))
                yield from ahead.popleft().result()

    def _draw(self, rows: np.ndarray, step: int) -> tuple[Sentences, Sentences]:
        """The rows with other cuts than in any other step (BPE-dropout)."""
        return (
            self._draw_side(self.prepared.source_lines, rows, 2 * step),
            self._draw_side(self.prepared.target_lines, rows, 2 * step + 1),
        )

    def _draw_side(self, lines: Lines, rows: np.ndarray, number: int) -> Sentences:
        seed = int(np.random.default_rng((self.seed, number)).integers(2**31))
        text = [lines[row] for row in rows]
        ids, lengths = self.prepared.tokenizer.draw(text, self.bpe_dropout, seed)
        return Sentences(ids, np.concatenate([[0], np.cumsum(lengths)]))


def gather(source: Sentences, target: Sentences, rows: np.ndarray, length: int) -> Batch:
    """Some pairs, both sides padded to a length.

    Without a row there is one of padding, which weighs nothing in a loss summed over tokens.
    """
    if len(rows) == 0:
        return Batch(*(np.full((1, length), PAD, np.int32) for _ in Batch._fields))
    target_out = _pad(target, rows, length)
    target_in = np.zeros_like(target_out)
    target_in[:, 1:] = target_out[:, :-1]
    # A sentence's own last token is its eos, which the decoder never reads.
    target_in[target_out == PAD] = PAD
    target_in[:, 0] = BOS
    return Batch(_pad(source, rows, length), target_in, target_out)


def _padded_length(source: Sentences, target: Sentences) -> int:
    """The bucket of the longest sentence of a batch."""
    longest = np.array([max(source.lengths.max(), target.lengths.max())])
    return int(padded_lengths(longest)[0])


def _pad(sentences: Sentences, rows: np.ndarray, length: int) -> np.ndarray:
    """Some sentences as a matrix, [rows, length]."""
    starts = sentences.splits[rows]
    ends = sentences.splits[rows + 1]
    columns = np.arange(length)
    real = columns < (ends - starts)[:, None]  # [rows, length]
    positions = np.where(real, starts[:, None] + columns, 0)
    return np.where(real, sentences.ids[positions], PAD).astype(np.int32)
