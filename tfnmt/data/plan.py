"""The plan of batches: which rows make up which batch, as a pure function of (seed, epoch).

Rows of like length share a bucket, are shuffled anew every epoch, and are cut where the token
budget is full. Where the cuts fall depends on the lengths alone, so every epoch has the same number
of batches and any step is found by its number: nothing about the data is saved to resume a run.

Nearly all batches of a bucket have the same shape, and there are few buckets: kernels that are made
for a shape are made once.
"""

from functools import lru_cache, partial
from itertools import count, pairwise
from typing import NamedTuple

import numpy as np

from tfnmt.config import Config
from tfnmt.data.prepared import Prepared
from tfnmt.errors import UserError

GROWTH_ROWS, GROWTH_BATCHES = 1000, 10
"""Pairs and batches that the growth by BPE-dropout is measured on, at least."""


class PlannedBatch(NamedTuple):
    """Row numbers, and the length that both sides of them are padded to."""

    rows: np.ndarray
    length: int


class Plan:
    """An endless sequence of batches, each row once an epoch.

    A batch fills rows x length slots, at most `batch_tokens`. Rows with a side longer than
    `max_length` are left out; `rows` are those that remain. Where BPE-dropout will make batches
    longer, by the factor `growth` on average, the slots are planned for that.
    """

    def __init__(
        self,
        source_lengths: np.ndarray,
        target_lengths: np.ndarray,
        batch_tokens: int,
        max_length: int,
        seed: int,
        growth: float = 1.0,
    ) -> None:
        longer = np.maximum(source_lengths, target_lengths)
        self.rows = np.flatnonzero(longer <= max_length)
        grown = np.ceil(longer[self.rows] * growth)
        self._lengths = np.minimum(padded_lengths(grown), int(np.ceil(max_length * growth)))
        self._sorted_lengths = np.sort(self._lengths)
        self._cuts = _cuts(self._sorted_lengths, batch_tokens)
        self._seed = seed
        self._epoch = lru_cache(maxsize=2)(self._make_epoch)

    @property
    def batches_per_epoch(self) -> int:
        """Batches in a pass over the data, the same in every epoch."""
        return len(self._cuts) - 1

    def batch(self, step: int) -> PlannedBatch:
        """The batch at that step, counted from 0 over all epochs."""
        epoch, number = divmod(step, self.batches_per_epoch)
        return self._epoch(epoch)[number]

    def _make_epoch(self, epoch: int) -> list[PlannedBatch]:
        """The batches of an epoch in their order."""
        random = np.random.default_rng((self._seed, epoch))
        shuffled = random.permutation(len(self.rows))
        # A stable sort leaves the rows of a bucket shuffled.
        order = shuffled[np.argsort(self._lengths[shuffled], kind="stable")]
        rows = self.rows[order]
        batches = [
            PlannedBatch(rows[start:end], int(self._sorted_lengths[end - 1]))
            for start, end in pairwise(self._cuts)
        ]
        return [batches[number] for number in random.permutation(self.batches_per_epoch)]


def make_plan(config: Config, prepared: Prepared) -> Plan:
    """The batches of a training."""
    data = config.data
    make = partial(
        Plan,
        prepared.source.lengths,
        prepared.target.lengths,
        data.slots,
        data.max_length,
        config.training.seed,
    )
    plan = make()
    if len(plan.rows) == 0:
        raise UserError(
            f"data.max_length: all {len(prepared.source):,} pairs have a side of more than "
            f"{data.max_length} pieces; raise it"
        )
    return make(_growth(plan, prepared, data.bpe_dropout)) if data.bpe_dropout else plan


def _growth(plan: Plan, prepared: Prepared, bpe_dropout: float) -> float:
    """How much longer BPE-dropout makes batches, each as long as its longest sentence: measured."""
    rows = planned = drawn = 0
    for step in count():
        batch = plan.batch(step)
        text = [
            lines[row]
            for lines in (prepared.source_lines, prepared.target_lines)
            for row in batch.rows
        ]
        _, lengths = prepared.tokenizer.draw(text, bpe_dropout, seed=step)
        rows += len(batch.rows)
        planned += len(batch.rows) * batch.length
        drawn += len(batch.rows) * int(padded_lengths(lengths.max(keepdims=True))[0])
        if rows >= GROWTH_ROWS and step + 1 >= GROWTH_BATCHES:
            break
    return drawn / planned


def padded_lengths(lengths: np.ndarray) -> np.ndarray:
    """Lengths rounded up to their bucket: a multiple of 2, from 32 on of 4, from 64 on of 8, ..."""
    grain = 2 ** np.maximum(1, np.floor(np.log2(lengths)).astype(int) - 3)
    return (-(-lengths // grain) * grain).astype(int)


def _cuts(sorted_lengths: np.ndarray, batch_tokens: int) -> list[int]:
    """Where batches begin in rows sorted by padded length, and the end.

    A batch has the length of its last row: n rows that end at length l fill n * l slots. What a
    bucket has left over goes into a batch with the next bucket's rows.
    """
    cuts = [0]
    while cuts[-1] < len(sorted_lengths):
        most = batch_tokens // sorted_lengths[cuts[-1]] + 1
        window = sorted_lengths[cuts[-1] : cuts[-1] + most]
        slots = np.arange(1, len(window) + 1) * window
        # One row at least: grown by BPE-dropout, it may be longer than the budget.
        rows = max(1, int(np.searchsorted(slots, batch_tokens, side="right")))
        cuts.append(cuts[-1] + rows)
    return cuts
