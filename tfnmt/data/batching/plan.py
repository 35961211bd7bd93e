"""The plan of batches: the pairs of each batch, as a pure function of (seed, step).

Every epoch is shuffled and divided into windows. Within a window, pairs of similar length share a
bucket, and a batch ends when its budget of padded tokens is used up. The batch boundaries depend on
the lengths of the first window only. So every window has the same number of batches, any step is
found by its number, and a run resumes without saved state of the data.

The window is the whole epoch, unless BPE-dropout samples other tokens, and so other lengths, in
every epoch. Then a window is the amount of text that is tokenized at once.

Nearly all batches of a bucket have the same shape, and there are few buckets. Kernels that are
compiled for a shape are compiled once.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from threading import Lock
from typing import NamedTuple

import numpy as np

from tfnmt.config import Config
from tfnmt.data.batching.sampling import EpochRows
from tfnmt.data.preparation.prepared import Prepared
from tfnmt.data.preparation.storage import TextArray, TokenArray
from tfnmt.errors import UserError

WINDOW = 32
"""Approximate batches of a window with BPE-dropout. More batches give less padding, but tokenizing
takes longer."""


class Pairs(NamedTuple):
    """Some pairs of sentences, by row number."""

    source: TokenArray
    target: TokenArray
    rows: np.ndarray  # row numbers in both

    @property
    def lengths(self) -> np.ndarray:
        """Return the length of the longer side of each pair, in tokens with EOS."""
        source, target = (side.lengths_of(self.rows) for side in (self.source, self.target))
        return np.maximum(source, target)


class PlannedBatch(NamedTuple):
    """The pairs of a batch, and the length that both sides are padded to."""

    pairs: Pairs
    length: int


Read = Callable[[np.ndarray, int], Pairs]
"""Maps row numbers of the corpus and the number of a window to pairs."""


class Plan:
    """An endless sequence of batches, with the rows that are sampled for each epoch.

    A batch has rows x length padded tokens: at most `batch_tokens`, or approximately as many with
    BPE-dropout or a temperature.
    """

    def __init__(self, read: Read, rows: EpochRows, window_rows: int, config: Config) -> None:
        """Create a plan.

        Args:
            read: Reads the pairs of a window.
            rows: The rows of each epoch.
            window_rows: The approximate number of rows in a window.
            config: Batch size, maximum length and random seed.
        """
        self.sampled = rows
        self._max_length = config.data.max_length
        self._seed = config.training.seed
        self._windows = max(1, len(rows) // window_rows)
        self._epoch = lru_cache(maxsize=1)(self._shuffle_epoch)
        self._read = lru_cache(maxsize=2)(partial(self._read_window, read))
        self._window = lru_cache(maxsize=2)(self._make_window)
        self._lock = Lock()  # so that no window is tokenized twice
        lengths = self._padded(self._read(0).lengths)
        # Some windows have one more row, which joins their last batch.
        self._boundaries = _boundaries(
            np.sort(lengths)[: len(rows) // self._windows], config.data.padded_tokens
        )

    @property
    def rows(self) -> np.ndarray:
        """Return all rows of the corpus that take part."""
        return np.concatenate([*self.sampled.rows.values()])

    @property
    def batches_per_epoch(self) -> int:
        """Return the number of batches per epoch, the same in every epoch."""
        return self._windows * self._batches_per_window

    def batch(self, step: int) -> PlannedBatch:
        """Return the batch of a step, counted from 0 over all epochs."""
        window, number = divmod(step, self._batches_per_window)
        with self._lock:
            return self._window(window)[number]

    @property
    def _batches_per_window(self) -> int:
        return len(self._boundaries) - 1

    def _read_window(self, read: Read, window: int) -> Pairs:
        """Return the shuffled pairs of a window. Windows are counted over all epochs."""
        epoch, number = divmod(window, self._windows)
        return read(self._epoch(epoch)[number], window)

    def _shuffle_epoch(self, epoch: int) -> list[np.ndarray]:
        """Return the shuffled rows of each window of an epoch."""
        shuffled = np.random.default_rng((self._seed, epoch)).permutation(self.sampled.of(epoch))
        return np.array_split(shuffled, self._windows)

    def _make_window(self, window: int) -> list[PlannedBatch]:
        """Return the batches of a window in order."""
        pairs = self._read(window)
        lengths = self._padded(pairs.lengths)
        order = np.argsort(lengths, kind="stable")  # leaves the rows of a bucket shuffled
        batches = [
            PlannedBatch(pairs._replace(rows=pairs.rows[some]), int(lengths[some[-1]]))
            for some in np.split(order, self._boundaries[1:-1])
        ]
        random = np.random.default_rng((self._seed, window, 1))
        return [batches[number] for number in random.permutation(len(batches))]

    def _padded(self, lengths: np.ndarray) -> np.ndarray:
        padded = padded_lengths(lengths)
        return np.where(lengths <= self._max_length, np.minimum(padded, self._max_length), padded)


def make_plan(config: Config, prepared: Prepared) -> Plan:
    """Plan the batches of a training run.

    Pairs with a side longer than `data.max_length` are left out, and directions are sampled.

    Args:
        config: Batch size, maximum length, temperature, BPE-dropout and random seed.
        prepared: The prepared corpus.

    Raises:
        UserError: All pairs of a direction are too long.
    """
    data = config.data
    lengths = np.maximum(prepared.source.lengths, prepared.target.lengths)
    fitting = {
        direction: rows.start + np.flatnonzero(lengths[rows.start : rows.stop] <= data.max_length)
        for direction, rows in (prepared.directions or {"": range(len(lengths))}).items()
    }
    for direction, own in fitting.items():
        if len(own) == 0:
            pairs = f"pairs of {direction}" if direction else f"{len(lengths):,} pairs"
            raise UserError(
                f"data.max_length={data.max_length}: all {pairs} have a longer side; use a larger "
                "value"
            )
    rows = EpochRows(fitting, data.direction_temperature, config.training.seed)
    if data.bpe_dropout == 0:
        return Plan(partial(_read_prepared, prepared), rows, len(rows), config)
    mean_length = lengths[np.concatenate([*fitting.values()])].mean()
    window_rows = WINDOW * data.padded_tokens // int(np.ceil(mean_length))
    sample = partial(_sample_tokens, prepared, data.bpe_dropout, config.training.seed)
    return Plan(sample, rows, window_rows, config)


def _read_prepared(prepared: Prepared, rows: np.ndarray, window: int) -> Pairs:
    """Return the prepared pairs."""
    del window
    return Pairs(prepared.source, prepared.target, rows)


def _sample_tokens(
    prepared: Prepared, bpe_dropout: float, seed: int, rows: np.ndarray, window: int
) -> Pairs:
    """Return the pairs with tokens sampled for this window (BPE-dropout)."""

    def sample(lines: TextArray, number: int) -> TokenArray:
        side_seed = int(np.random.default_rng((seed, number)).integers(2**31))
        text = [lines[row] for row in rows]
        ids, lengths = prepared.tokenizer.sample(text, bpe_dropout, side_seed)
        return TokenArray(ids, np.concatenate([[0], np.cumsum(lengths)]))

    source = sample(prepared.source_lines, 2 * window)
    if prepared.tokenizer.language_tokens:
        source = source.with_first(prepared.source.ids[prepared.source.splits[rows]])
    target = sample(prepared.target_lines, 2 * window + 1)
    return Pairs(source, target, np.arange(len(rows)))


def padded_lengths(lengths: np.ndarray) -> np.ndarray:
    """Round lengths up to their bucket: a multiple of 2, from 32 on of 4, from 64 on of 8, ..."""
    grain = 2 ** np.maximum(1, np.floor(np.log2(lengths)).astype(int) - 3)
    return (-(-lengths // grain) * grain).astype(int)


def _boundaries(sorted_lengths: np.ndarray, batch_tokens: int) -> list[int]:
    """Return the starts of the batches in rows sorted by padded length, and the end.

    A batch is padded to the length of its last row: n rows up to length l are n * l padded tokens.
    The remaining rows of a bucket join the first rows of the next bucket.
    """
    boundaries = [0]
    while boundaries[-1] < len(sorted_lengths):
        most = batch_tokens // sorted_lengths[boundaries[-1]] + 1
        window = sorted_lengths[boundaries[-1] : boundaries[-1] + most]
        padded_tokens = np.arange(1, len(window) + 1) * window
        # At least one row: with BPE-dropout it may be longer than the budget.
        rows = max(1, int(np.searchsorted(padded_tokens, batch_tokens, side="right")))
        boundaries.append(boundaries[-1] + rows)
    return boundaries
