"""Many sentences in one flat array on disk, as ids or as text: written once, then memory-mapped."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np


@dataclass(frozen=True)
class Sentences:
    """Sentences of ids."""

    ids: np.ndarray  # all ids, end to end
    splits: np.ndarray  # [sentences + 1]: sentence i is ids[splits[i]:splits[i + 1]]

    def __len__(self) -> int:
        return len(self.splits) - 1

    @property
    def lengths(self) -> np.ndarray:
        """The number of ids of each sentence."""
        return np.diff(self.splits)

    def __getitem__(self, row: int) -> np.ndarray:
        return self.ids[self.splits[row] : self.splits[row + 1]]


@dataclass(frozen=True)
class Lines:
    """Sentences of text."""

    text: np.ndarray  # UTF-8 bytes, each line with its end
    splits: np.ndarray  # [lines + 1]

    def __len__(self) -> int:
        return len(self.splits) - 1

    def __getitem__(self, row: int) -> str:
        return self.text[self.splits[row] : self.splits[row + 1] - 1].tobytes().decode()

    def between(self, first: int, end: int) -> list[str]:
        """The lines of the rows from `first` to before `end`."""
        text = self.text[self.splits[first] : self.splits[end]].tobytes().decode()
        return text.split("\n")[:-1]


class FlatWriter:
    """Writes `<path>` and `<path>.splits.npy` piece by piece."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lengths: list[np.ndarray] = []

    def __enter__(self) -> Self:
        self._file = self.path.open("wb")
        return self

    def write(self, flat: bytes, lengths: Iterable[int]) -> None:
        """Adds sentences: their bytes end to end, and how many items each has."""
        self._file.write(flat)
        self._lengths.append(np.fromiter(lengths, np.int64))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()
        if error is None:
            splits = np.concatenate([np.zeros(1, np.int64), *self._lengths])
            np.save(_splits_path(self.path), np.cumsum(splits, out=splits))


def open_sentences(path: Path, dtype: type[np.integer]) -> Sentences:
    """The ids in a file, memory-mapped."""
    return Sentences(*_open(path, dtype))


def open_lines(path: Path) -> Lines:
    """The text in a file, memory-mapped."""
    return Lines(*_open(path, np.uint8))


def _open(path: Path, dtype: type[np.integer]) -> tuple[np.ndarray, np.ndarray]:
    return np.memmap(path, dtype, mode="r"), np.load(_splits_path(path), mmap_mode="r")


def _splits_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.splits.npy")
