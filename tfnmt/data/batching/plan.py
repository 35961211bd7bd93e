"""The plan of batches: which pairs make up which batch, as a pure function of (seed, step).

An epoch is shuffled anew and worked through window by window. Within a window, pairs of like length
share a bucket, and are cut where the token budget is full. Where the cuts fall depends on the first
window's lengths alone, so every window has the same number of batches and any step is found by its
number: nothing about the data is saved to resume a run.

The window is the whole epoch, unless BPE-dropout draws other pieces, and so other lengths, in every
epoch. Then it is as much text as is drawn at once.

Nearly all batches of a bucket have the same shape, and there are few buckets: kernels that are made
for a shape are made once.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from threading import Lock
from typing import NamedTuple

import numpy as np

from tfnmt.config import Config
from tfnmt.data.preparation.prepared import Prepared
from tfnmt.data.preparation.storage import Lines, Sentences
from tfnmt.errors import UserError

WINDOW = 32
"""Batches of a window where text is drawn, about: the more, the less padding, and the longer the
drawing."""


class Pairs(NamedTuple):
    """Some pairs of sentences, by their numbers."""

    source: Sentences
    target: Sentences
    rows: np.ndarray  # numbers in both

    @property
    def lengths(self) -> np.ndarray:
        """Of the longer side of each pair, in pieces and eos."""
        longer: np.ndarray = np.maximum(self.source.lengths, self.target.lengths)[self.rows]
        return longer


class PlannedBatch(NamedTuple):
    """The pairs of a batch, and the length that both sides of them are padded to."""

    pairs: Pairs
    length: int


Read = Callable[[np.ndarray, int], Pairs]
"""Given row numbers of the corpus and the number of their window, the pairs as they are then."""


class Plan:
    """An endless sequence of batches, each row once an epoch.

    A batch fills rows x length slots, at most `batch_tokens`; where text is drawn, about as many.
    `rows` are the rows of the corpus that take part, `window_rows` about so many make a window.
    """

    def __init__(self, read: Read, rows: np.ndarray, window_rows: int, config: Config) -> None:
        self.rows = rows
        self._max_length = config.data.max_length
        self._seed = config.training.seed
        self._windows = max(1, len(rows) // window_rows)
        self._read = lru_cache(maxsize=2)(partial(self._read_window, read))
        self._window = lru_cache(maxsize=2)(self._make_window)
        self._one_at_a_time = Lock()  # so that no window is drawn twice
        lengths = self._padded(self._read(0).lengths)
        # Some windows have a row more, which goes into their last batch.
        self._cuts = _cuts(np.sort(lengths)[: len(rows) // self._windows], config.data.slots)

    @property
    def batches_per_epoch(self) -> int:
        """Batches in a pass over the data, the same in every epoch."""
        return self._windows * self._batches_per_window

    def batch(self, step: int) -> PlannedBatch:
        """The batch at that step, counted from 0 over all epochs."""
        window, number = divmod(step, self._batches_per_window)
        with self._one_at_a_time:
            return self._window(window)[number]

    @property
    def _batches_per_window(self) -> int:
        return len(self._cuts) - 1

    def _read_window(self, read: Read, window: int) -> Pairs:
        """The pairs of a window in a random order; windows are counted over all epochs."""
        epoch, number = divmod(window, self._windows)
        shuffled = self._random(epoch).permutation(self.rows)
        return read(np.array_split(shuffled, self._windows)[number], window)

    def _make_window(self, window: int) -> list[PlannedBatch]:
        """The batches of a window in their order."""
        pairs = self._read(window)
        lengths = self._padded(pairs.lengths)
        order = np.argsort(lengths, kind="stable")  # leaves the rows of a bucket shuffled
        batches = [
            PlannedBatch(pairs._replace(rows=pairs.rows[some]), int(lengths[some[-1]]))
            for some in np.split(order, self._cuts[1:-1])
        ]
        random = np.random.default_rng((self._seed, window, 1))
        return [batches[number] for number in random.permutation(len(batches))]

    def _padded(self, lengths: np.ndarray) -> np.ndarray:
        padded = padded_lengths(lengths)
        return np.where(lengths <= self._max_length, np.minimum(padded, self._max_length), padded)

    def _random(self, epoch: int) -> np.random.Generator:
        return np.random.default_rng((self._seed, epoch))


def make_plan(config: Config, prepared: Prepared) -> Plan:
    """The batches of a training.

    Pairs with a side longer than `data.max_length` are left out.
    """
    data = config.data
    lengths = np.maximum(prepared.source.lengths, prepared.target.lengths)
    rows = np.flatnonzero(lengths <= data.max_length)
    if len(rows) == 0:
        raise UserError(
            f"data.max_length: all {len(lengths):,} pairs have a side of more than "
            f"{data.max_length} pieces; raise it"
        )
    if data.bpe_dropout == 0:
        return Plan(partial(_encoded, prepared), rows, len(rows), config)
    window_rows = WINDOW * data.slots // int(np.ceil(lengths[rows].mean()))
    draw = partial(_drawn, prepared, data.bpe_dropout, config.training.seed)
    return Plan(draw, rows, window_rows, config)


def _encoded(prepared: Prepared, rows: np.ndarray, window: int) -> Pairs:
    """The pairs as they were prepared."""
    del window
    return Pairs(prepared.source, prepared.target, rows)


def _drawn(
    prepared: Prepared, bpe_dropout: float, seed: int, rows: np.ndarray, window: int
) -> Pairs:
    """The pairs with other cuts than in any other window (BPE-dropout)."""

    def draw(lines: Lines, number: int) -> Sentences:
        side_seed = int(np.random.default_rng((seed, number)).integers(2**31))
        text = [lines[row] for row in rows]
        ids, lengths = prepared.tokenizer.draw(text, bpe_dropout, side_seed)
        return Sentences(ids, np.concatenate([[0], np.cumsum(lengths)]))

    source = draw(prepared.source_lines, 2 * window)
    target = draw(prepared.target_lines, 2 * window + 1)
    return Pairs(source, target, np.arange(len(rows)))


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
        # One row at least: drawn by BPE-dropout, it may be longer than the budget.
        rows = max(1, int(np.searchsorted(slots, batch_tokens, side="right")))
        cuts.append(cuts[-1] + rows)
    return cuts
