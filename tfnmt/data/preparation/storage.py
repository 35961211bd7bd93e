"""Sentences in one flat array on disk, as ids or text: written once, then memory-mapped."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np


@dataclass(frozen=True)
class TokenArray:
    """Sentences as token ids."""

    ids: np.ndarray  # the ids of all sentences, concatenated
    splits: np.ndarray  # [sentences + 1]: sentence i is ids[splits[i]:splits[i + 1]]

    def __len__(self) -> int:
        return len(self.splits) - 1

    @property
    def lengths(self) -> np.ndarray:
        """Return the number of ids of each sentence, [sentences]."""
        return np.diff(self.splits)

    def lengths_of(self, rows: np.ndarray) -> np.ndarray:
        """Return the number of ids of some sentences, without reading the others."""
        lengths: np.ndarray = self.splits[rows + 1] - self.splits[rows]
        return lengths

    def __getitem__(self, row: int) -> np.ndarray:
        return self.ids[self.splits[row] : self.splits[row + 1]]

    def with_first(self, ids: np.ndarray) -> "TokenArray":
        """Return the sentences with one more id in front of each, [sentences]."""
        flat = np.insert(self.ids, self.splits[:-1], ids)
        return TokenArray(flat, self.splits + np.arange(len(self.splits)))


@dataclass(frozen=True)
class TextArray:
    """Sentences as text."""

    text: np.ndarray  # UTF-8 bytes of all lines, line ends included
    splits: np.ndarray  # [lines + 1]

    def __len__(self) -> int:
        return len(self.splits) - 1

    def __getitem__(self, row: int) -> str:
        return self.text[self.splits[row] : self.splits[row + 1] - 1].tobytes().decode()

    def between(self, first: int, end: int) -> list[str]:
        """Return the lines of rows first, ..., end - 1."""
        text = self.text[self.splits[first] : self.splits[end]].tobytes().decode()
        return text.split("\n")[:-1]


class FlatWriter:
    """Writes `<path>` and `<path>.splits.npy` incrementally."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lengths: list[np.ndarray] = []

    def __enter__(self) -> Self:
        self._file = self.path.open("wb")
        return self

    def write(self, flat: bytes, lengths: Iterable[int]) -> None:
        """Append sentences: their concatenated bytes, and the number of items of each."""
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
            np.save(splits_path(self.path), np.cumsum(splits, out=splits))


def open_tokens(path: Path, dtype: type[np.integer]) -> TokenArray:
    """Open a file of ids, memory-mapped.

    Raises:
        ValueError: The file or its splits are damaged.
    """
    return TokenArray(*_open(path, dtype))


def open_text(path: Path) -> TextArray:
    """Open a file of text, memory-mapped.

    Raises:
        ValueError: The file or its splits are damaged.
    """
    return TextArray(*_open(path, np.uint8))


def _open(path: Path, dtype: type[np.integer]) -> tuple[np.ndarray, np.ndarray]:
    try:
        flat = np.memmap(path, dtype, mode="r")
        splits = np.lib.format.open_memmap(splits_path(path), mode="r")
        consistent = splits.ndim == 1 and splits.dtype == np.int64 and splits[-1] == len(flat)
    except OSError:
        raise
    except Exception:  # empty, or of another format: NumPy raises many types
        consistent = False
    if not consistent:
        raise ValueError(f"{path}: damaged, because it does not fit {splits_path(path).name}")
    return flat, splits


def splits_path(path: Path) -> Path:
    """Return the file with the start of each sentence, which belongs to a flat file."""
    return path.with_name(f"{path.name}.splits.npy")
