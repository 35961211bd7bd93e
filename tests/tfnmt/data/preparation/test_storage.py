"""Sentences in flat arrays on disk: what is written comes back, row by row."""

import random
from pathlib import Path

import numpy as np
import pytest

from tfnmt.data.preparation.storage import FlatWriter, Lines, Sentences, open_lines, open_sentences

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
"""Lines that a reader of lines which splits by Unicode, or strips, would not give back."""


def written(path: Path, lines: list[str], pieces: int) -> Lines:
    """The lines, written so many at a time."""
    with FlatWriter(path) as writer:
        for start in range(0, len(lines), pieces):
            encoded = [f"{line}\n".encode() for line in lines[start : start + pieces]]
            writer.write(b"".join(encoded), map(len, encoded))
    return open_lines(path)


def test_sentences_are_cut_out_of_flat_arrays() -> None:
    sentences = Sentences(np.array([5, 6, 2, 7, 2], np.uint16), np.array([0, 3, 5]))
    assert len(sentences) == 2
    assert sentences.lengths.tolist() == [3, 2]
    assert [sentences[row].tolist() for row in range(2)] == [[5, 6, 2], [7, 2]]


@pytest.mark.parametrize("pieces", [1, 3, 100])
def test_lines_come_back_as_they_were_written(tmp_path: Path, pieces: int) -> None:
    lines = written(tmp_path / "text", DIFFICULT, pieces)
    assert len(lines) == len(DIFFICULT)
    assert [lines[row] for row in range(len(lines))] == DIFFICULT
    for first in range(len(DIFFICULT) + 1):
        for end in range(first, len(DIFFICULT) + 1):
            assert lines.between(first, end) == DIFFICULT[first:end]


def test_the_file_of_lines_is_the_text(tmp_path: Path) -> None:
    written(tmp_path / "text", DIFFICULT, 4)
    assert (tmp_path / "text").read_bytes() == "".join(f"{line}\n" for line in DIFFICULT).encode()


@pytest.mark.parametrize("dtype", [np.uint16, np.int32])
def test_ids_come_back_as_they_were_written(tmp_path: Path, dtype: type[np.integer]) -> None:
    draw = random.Random(1)
    largest = np.iinfo(dtype).max
    rows = [[draw.randint(0, largest) for _ in range(draw.choice([1, 2, 50]))] for _ in range(200)]
    with FlatWriter(tmp_path / "ids") as writer:
        for start in range(0, 200, 30):
            some = rows[start : start + 30]
            flat = np.array([number for row in some for number in row], dtype)
            writer.write(flat.tobytes(), map(len, some))
    sentences = open_sentences(tmp_path / "ids", dtype)
    assert len(sentences) == 200
    assert [sentences[row].tolist() for row in range(200)] == rows
    assert sentences.lengths.tolist() == [len(row) for row in rows]


def test_what_is_open_is_memory_mapped_and_cannot_be_changed(tmp_path: Path) -> None:
    lines = written(tmp_path / "text", DIFFICULT, 4)
    for array in (lines.text, lines.splits):
        assert isinstance(array, np.memmap)
        assert not array.flags.writeable


def break_off(path: Path) -> None:
    with FlatWriter(path) as writer:
        writer.write(b"half", [4])
        raise KeyboardInterrupt


def test_after_an_error_the_rows_have_no_splits(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        break_off(tmp_path / "text")
    assert [path.name for path in tmp_path.iterdir()] == ["text"]
