"""Sentences in flat arrays on disk: reading returns the written rows."""

import random
from pathlib import Path

import numpy as np
import pytest

from tfnmt.data.preparation.storage import FlatWriter, TextArray, TokenArray, open_text, open_tokens

DIFFICULT = [
    "plain",
    "",
    "a\tb",
    "carriage\rreturn at the end\r",
    "line separators\u2028 \u2029 \x85 \x0b \x0c \x1c",
    "  spaces  ",
    "",
    "",
    "Urdu \u06cc\u06c1\u200c\u06c1\u06d2\u06d4",
    "👩\u200d👩\u200d👧",
    "nul \0 and BOM \ufeff",
    "Cafe\u0301 \u00a0 \u3000 \u2581",
    "𝄞" * 3000,
    "",
]
"""Lines that a reader loses if it strips them or splits at Unicode line separators."""


def write_text(path: Path, lines: list[str], count: int) -> TextArray:
    """Write lines, `count` at a time, and open them."""
    with FlatWriter(path) as writer:
        for start in range(0, len(lines), count):
            encoded = [f"{line}\n".encode() for line in lines[start : start + count]]
            writer.write(b"".join(encoded), map(len, encoded))
    return open_text(path)


def test_token_array_returns_sentences_by_row() -> None:
    sentences = TokenArray(np.array([5, 6, 2, 7, 2], np.uint16), np.array([0, 3, 5]))
    assert len(sentences) == 2
    assert sentences.lengths.tolist() == [3, 2]
    assert [sentences[row].tolist() for row in range(2)] == [[5, 6, 2], [7, 2]]


def test_token_array_returns_the_lengths_of_some_sentences() -> None:
    lengths = np.random.default_rng(1).integers(0, 9, 100)
    splits = np.concatenate([[0], np.cumsum(lengths)])
    sentences = TokenArray(np.zeros(splits[-1], np.uint16), splits)
    for rows in (np.array([99, 0, 7, 7]), np.arange(100), np.zeros(0, int)):
        assert sentences.lengths_of(rows).tolist() == sentences.lengths[rows].tolist()


@pytest.mark.parametrize("count", [1, 3, 100])
def test_text_array_returns_the_written_lines(tmp_path: Path, count: int) -> None:
    lines = write_text(tmp_path / "text", DIFFICULT, count)
    assert len(lines) == len(DIFFICULT)
    assert [lines[row] for row in range(len(lines))] == DIFFICULT
    for first in range(len(DIFFICULT) + 1):
        for end in range(first, len(DIFFICULT) + 1):
            assert lines.between(first, end) == DIFFICULT[first:end]


def test_text_file_contains_the_lines(tmp_path: Path) -> None:
    write_text(tmp_path / "text", DIFFICULT, 4)
    assert (tmp_path / "text").read_bytes() == "".join(f"{line}\n" for line in DIFFICULT).encode()


@pytest.mark.parametrize("dtype", [np.uint16, np.int32])
def test_token_array_returns_the_written_ids(tmp_path: Path, dtype: type[np.integer]) -> None:
    numbers = random.Random(1)
    largest = np.iinfo(dtype).max
    rows = [
        [numbers.randint(0, largest) for _ in range(numbers.choice([1, 2, 50]))] for _ in range(200)
    ]
    with FlatWriter(tmp_path / "ids") as writer:
        for start in range(0, 200, 30):
            some = rows[start : start + 30]
            flat = np.array([number for row in some for number in row], dtype)
            writer.write(flat.tobytes(), map(len, some))
    sentences = open_tokens(tmp_path / "ids", dtype)
    assert len(sentences) == 200
    assert [sentences[row].tolist() for row in range(200)] == rows
    assert sentences.lengths.tolist() == [len(row) for row in rows]


def test_opened_arrays_are_memory_mapped_and_read_only(tmp_path: Path) -> None:
    lines = write_text(tmp_path / "text", DIFFICULT, 4)
    for array in (lines.text, lines.splits):
        assert isinstance(array, np.memmap)
        assert not array.flags.writeable


def fail_while_writing(path: Path) -> None:
    with FlatWriter(path) as writer:
        writer.write(b"half", [4])
        raise KeyboardInterrupt


def test_writer_writes_no_splits_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        fail_while_writing(tmp_path / "text")
    assert [path.name for path in tmp_path.iterdir()] == ["text"]
