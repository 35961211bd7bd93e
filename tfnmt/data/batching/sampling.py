"""The rows of an epoch: every pair once, or sampled by direction with a temperature."""

from collections.abc import Mapping

import numpy as np


class EpochRows:
    """The rows of each epoch, as a pure function of (seed, epoch).

    With D pairs of a direction and a temperature T, the direction has a share in proportion to
    D^(1/T) (Arivazhagan et al., 2019, section 4.1). T = 1 is proportional sampling, which Johnson
    et al. (2017) also use; a high T makes the shares equal. An epoch always has as many rows as the
    corpus. A direction takes its rows from an endless sequence of shuffles, so no row is taken
    again before the others of its direction.
    """

    def __init__(self, rows: Mapping[str, np.ndarray], temperature: float, seed: int) -> None:
        """Create the sampler.

        Args:
            rows: The rows of the corpus that take part, by direction.
            temperature: T, 1 or greater.
            seed: The random seed.
        """
        self.counts = _counts({name: len(own) for name, own in rows.items()}, temperature)
        self.rows = rows
        self._seed = seed

    def __len__(self) -> int:
        """Return the number of rows in an epoch."""
        return sum(self.counts.values())

    def summary(self) -> str:
        """Return the number of rows of each direction, and how many there are to sample from."""
        return ", ".join(
            f"{name} {count:,} (of {len(self.rows[name]):,})" for name, count in self.counts.items()
        )

    def of(self, epoch: int) -> np.ndarray:
        """Return the rows of an epoch, ordered by direction."""
        sampled = [self._of_direction(number, name, epoch) for number, name in enumerate(self.rows)]
        return np.concatenate(sampled)

    def _of_direction(self, number: int, name: str, epoch: int) -> np.ndarray:
        rows, count = self.rows[name], self.counts[name]
        if count == len(rows):
            return rows
        first, skipped = divmod(epoch * count, len(rows))
        last = (epoch * count + count - 1) // len(rows)
        shuffles = [
            np.random.default_rng((self._seed, number, shuffle, 2)).permutation(rows)
            for shuffle in range(first, last + 1)
        ]
        sampled: np.ndarray = np.concatenate(shuffles)[skipped : skipped + count]
        return sampled


def _counts(sizes: Mapping[str, int], temperature: float) -> dict[str, int]:
    """Return the rows per epoch of each direction. Their sum is that of the sizes."""
    if temperature == 1:
        return dict(sizes)
    total = sum(sizes.values())
    weights = np.array([(size / total) ** (1 / temperature) for size in sizes.values()])
    ends = np.rint(np.cumsum(weights) / weights.sum() * total).astype(int)
    return dict(zip(sizes, np.diff(ends, prepend=0).tolist(), strict=True))
