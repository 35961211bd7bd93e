"""Many lines through a translator: in batches of like length, answers in the order of the lines."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import tensorflow as tf

Translate = Callable[[Any], dict[str, Any]]
"""text [B] -> translation, score and truncated, [B] each."""

WINDOW = 8192
"""Lines that are sorted by length together; memory is bounded by it."""

MAX_ROWS = 64
MAX_CHARACTERS = 16_384
"""A batch's limits: rows, and rows x the characters of the longest."""


class Translation(NamedTuple):
    """A line's translation."""

    text: str
    score: float
    truncated: bool


def translate_lines(translate: Translate, lines: Iterable[str]) -> Iterator[Translation]:
    """The translation of each line, in order; a line of white space alone becomes ''."""
    lines = iter(lines)
    while window := list(islice(lines, WINDOW)):
        yield from _translate_window(translate, window)


def _translate_window(translate: Translate, lines: list[str]) -> list[Translation]:
    answers = [Translation("", 0.0, False)] * len(lines)
    for rows in _batches(lines):
        result = translate(tf.constant([lines[row].encode(errors="replace") for row in rows]))
        columns = (result[name].numpy() for name in ("translation", "score", "truncated"))
        for row, text, score, truncated in zip(rows, *columns, strict=True):
            answers[row] = Translation(_one_line(text), float(score), bool(truncated))
    return answers


def _batches(lines: list[str]) -> Iterator[list[int]]:
    """Row numbers of the lines that have text, the longest lines first."""
    rows = [row for row, line in enumerate(lines) if line.strip()]
    rows.sort(key=lambda row: -len(lines[row]))
    start = 0
    while start < len(rows):
        size = max(1, min(MAX_ROWS, MAX_CHARACTERS // len(lines[rows[start]])))
        yield rows[start : start + size]
        start += size


def _one_line(text: bytes) -> str:
    """Byte pieces can spell a line break; a line's translation is a line."""
    return text.decode().replace("\n", " ").replace("\r", " ")
