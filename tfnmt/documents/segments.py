"""Segments: text with marks, such as bold words and links, and with objects, such as images.

A format reads a document to segments. `tfnmt.documents.translation` sets the translation of each,
and the format writes the document again. Neither knows anything of the other.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple, Protocol

import numpy as np

Marks = tuple[Any, ...]
"""The marks around a piece, the outermost first. Only the format knows what a mark is; equal marks
are the same mark."""


class Piece(NamedTuple):
    """A part of a segment."""

    text: str
    marks: Marks = ()
    atom: Any = None
    """An object that is moved as a whole. Its text, if any, is a word that comes back unchanged."""


@dataclass(eq=False)
class Segment:
    """A paragraph, a cell or an attribute: the unit that the sentences are split from."""

    pieces: Sequence[Piece]
    translation: Sequence[Piece] = field(default=())
    """The translation, an untranslated copy at first."""

    def __post_init__(self) -> None:
        self.translation = self.translation or self.pieces

    @property
    def text(self) -> str:
        """The text to translate."""
        return joined(self.pieces)

    @property
    def translated_text(self) -> str:
        """The translated text."""
        return joined(self.translation)


class Alignment(Protocol):
    """Tokens of a sentence and of its translation, EOS included, and how they attend."""

    @property
    def source(self) -> Sequence[str]: ...  # noqa: D102
    @property
    def target(self) -> Sequence[str]: ...  # noqa: D102
    @property
    def attention(self) -> Sequence[Sequence[float]] | np.ndarray: ...  # noqa: D102


class Translator(Protocol):
    """A model that translates and aligns sentences of one direction."""

    def translate(self, sentences: Sequence[str]) -> Sequence[str]:
        """Return the translation of each sentence."""

    def align(self, pairs: Sequence[tuple[str, str]]) -> Sequence[Alignment]:
        """Return the alignment of each sentence with its translation."""


@dataclass(frozen=True)
class Document:
    """A document that has been read."""

    segments: Sequence[Segment]
    write: Callable[[], bytes]
    """Returns the document with the translations of its segments."""


def text_segment(text: str) -> Segment:
    """Return a segment without marks."""
    return Segment([Piece(text)])


def joined(pieces: Iterable[Piece]) -> str:
    """Return the text of pieces."""
    return "".join(piece.text for piece in pieces)


def cut(pieces: Sequence[Piece], start: int, end: int) -> list[Piece]:
    """Return the pieces between two positions of the joined text; see `divide`."""
    return divide(pieces, [0, start, end])[1]


def divide(pieces: Sequence[Piece], positions: Sequence[int]) -> list[list[Piece]]:
    """Return the pieces between each two neighbors of sorted positions of the joined text.

    An object without text belongs to the part that begins at its position. Objects with text are
    not divided: they belong to the part with their beginning. Pieces outside of the positions are
    dropped, so the last position must be after the text to include an object at its end.
    """
    parts: list[list[Piece]] = [[] for _ in positions]  # the last one is dropped
    number = -1
    start = 0
    for piece in pieces:
        end = start + len(piece.text)
        is_whole = piece.atom is not None or not piece.text
        first = start
        while first < end or is_whole:
            while number + 1 < len(positions) and positions[number + 1] <= first:
                number += 1
            last = positions[number + 1] if number + 1 < len(positions) else end
            last = end if is_whole else min(end, last)
            if number >= 0:
                parts[number].append(piece._replace(text=piece.text[first - start : last - start]))
            if is_whole:
                break
            first = last
        start = end
    return parts[:-1]


def common_marks(first: Marks, second: Marks) -> Marks:
    """Return the outer marks that two pieces share."""
    count = 0
    while count < min(len(first), len(second)) and first[count] == second[count]:
        count += 1
    return first[:count]


class MarkChange(NamedTuple):
    """A piece, and the marks that end and begin before it."""

    piece: Piece
    ending: Marks
    """The innermost first."""
    beginning: Sequence[tuple[Any, bool]]
    """The outermost first, each with whether an earlier piece had the mark as well."""


def mark_changes(pieces: Iterable[Piece]) -> Iterator[MarkChange]:
    """Yield each piece with the changes of marks. The marks of the last piece do not end."""
    current: Marks = ()
    seen: set[Any] = set()
    for piece in pieces:
        kept = len(common_marks(current, piece.marks))
        new = piece.marks[kept:]
        yield MarkChange(piece, current[kept:][::-1], [(mark, mark in seen) for mark in new])
        current = piece.marks
        seen.update(new)


def merged(pieces: Iterable[Piece]) -> list[Piece]:
    """Join neighbors with the same marks, and drop pieces without text, marks and object."""
    kept = (piece for piece in pieces if piece.text or piece.marks or piece.atom is not None)
    result: list[Piece] = []
    for (is_text, marks), group in groupby(kept, lambda piece: (piece.atom is None, piece.marks)):
        if is_text:
            result.append(Piece(joined(group), marks))
        else:
            result += group
    return result
