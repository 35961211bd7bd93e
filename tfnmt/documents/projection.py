"""Marks and objects back around the words that they were around."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tfnmt.documents.alignment import find_words, nearest_words, word_weights
from tfnmt.documents.glossary import Match
from tfnmt.documents.segments import Alignment, Marks, Piece, common_marks, joined, merged
from tfnmt.documents.sentences import Span

MAX_GAP = 2
"""Unmarked words between two words of a mark that may belong to it, such as an article."""
MIN_GAP_WEIGHT = 0.25
"""Share of the weight of such a word that must be on words of the mark."""


class ModelText(NamedTuple):
    """A sentence as the model reads it."""

    pieces: Sequence[Piece]
    """The parts of its text, with stand-ins instead of protected parts."""
    originals: Mapping[str, Piece]
    """The protected part for each stand-in."""

    @property
    def text(self) -> str:
        """The text that the model reads."""
        return joined(self.pieces)

    @property
    def needs_alignment(self) -> bool:
        """Whether marks or objects have to be placed."""
        return len({piece.marks for piece in self.pieces}) > 1 or any(
            not piece.text for piece in self.pieces
        )


@dataclass
class _Word:
    """A word of the translation."""

    text: str
    span: Span
    nearest: int  # the source word
    marks: Marks = ()

    @property
    def is_word(self) -> bool:
        """Whether it is no punctuation mark."""
        return _has_word(self.text)


class _Anchor(NamedTuple):
    """A piece to insert between two words of the translation."""

    place: int  # the number of the second word
    piece: Piece
    after_space: bool = False  # next to the second word


def restore(source: ModelText, translation: str) -> list[Piece]:
    """Return the translation of a text with a single mark and without objects."""
    marks = source.pieces[0].marks if source.pieces else ()
    words = [_Word(span.of(translation), span, 0, marks) for span in find_words(translation)]
    if not words:  # an empty translation still has the mark
        return [Piece(translation, marks)]
    return merged(_build(source, translation, words, []))


def project(
    source: ModelText, translation: str, alignment: Alignment, terms: Sequence[Match]
) -> tuple[list[Piece], list[Match]]:
    """Return the translation with the marks of the source.

    Args:
        source: The sentence.
        translation: Its translation by the model.
        alignment: The alignment of the two texts.
        terms: Terms of a glossary to replace.

    Returns:
        The translation, and the terms that could not be replaced, because the words that belong to
        them are not next to one another.
    """
    text = source.text
    source_words = find_words(text)
    spans = find_words(translation)
    weights = word_weights(text, translation, alignment)
    names = [span.of(text) for span in source_words], [span.of(translation) for span in spans]
    nearest = nearest_words(*names, weights)
    words = [
        _Word(name, span, number)
        for name, span, number in zip(names[1], spans, nearest, strict=True)
    ]
    marks = _marks_by_word(source.pieces, source_words)
    for word in words:
        word.marks = marks[word.nearest] if marks else ()
    _fill_gaps(words, marks, weights)
    anchors = [*_lost_marks(source.pieces, source_words, words, weights)]
    anchors += _objects(source.pieces, source_words, words)
    words_left, left = _replace_terms(words, source_words, terms, anchors)
    return merged(_build(source, translation, words_left, anchors)), left


def _marks_by_word(pieces: Sequence[Piece], words: Sequence[Span]) -> list[Marks]:
    """Return the marks around most of each word."""
    result: list[Marks] = []
    longest: list[int] = []
    start = first = 0
    for piece in pieces:
        end = start + len(piece.text)
        number = first
        while number < len(words) and words[number].start < end:
            length = min(end, words[number].end) - max(start, words[number].start)
            if number == len(result):
                result.append(piece.marks)
                longest.append(length)
            elif length > longest[number]:
                result[number], longest[number] = piece.marks, length
            number += 1
        first = number - 1 if number > first and words[number - 1].end > end else number
        start = end
    return result


def _fill_gaps(words: Sequence[_Word], marks: Sequence[Marks], weights: np.ndarray) -> None:
    """Mark words between two words of the same mark, if the model attended to the mark as well."""
    for index, word in enumerate(words):
        if not word.marks or index == 0 or words[index - 1].marks == word.marks:
            continue
        start = index
        while start > 0 and index - start <= MAX_GAP and words[start - 1].marks != word.marks:
            start -= 1
        if start == 0 or index - start > MAX_GAP:
            continue
        columns = [number for number, each in enumerate(marks) if each == word.marks]
        for gap in range(start, index):
            row = weights[gap]
            around = words[gap].marks == word.marks[: len(words[gap].marks)]
            if around and row[columns].sum() > MIN_GAP_WEIGHT * row.sum():
                words[gap].marks = word.marks


def _lost_marks(
    pieces: Sequence[Piece],
    source_words: Sequence[Span],
    words: Sequence[_Word],
    weights: np.ndarray,
) -> Iterator[_Anchor]:
    """Give marks without words the word that depends most on them; yield those that find none.

    Punctuation is no word, unless the mark of the source has only punctuation.
    """
    position = 0
    for piece in pieces:
        start, position = position, position + len(piece.text)
        present = [word.marks for word in words if word.is_word or not _has_word(piece.text)]
        if not piece.text or not piece.marks or piece.marks in present:
            continue
        columns = [
            number for number, span in enumerate(source_words) if start <= span.start < position
        ]
        free = [
            index
            for index, word in enumerate(words)
            if word.is_word and present.count(word.marks) > 1
        ]
        if columns and free:
            best = max(free, key=lambda index: weights[index, columns].sum())
            words[best].marks = piece.marks
        elif all(word.marks != piece.marks for word in words):
            yield _Anchor(_place(start, source_words, words), Piece("", piece.marks))


def _objects(
    pieces: Sequence[Piece], source_words: Sequence[Span], words: Sequence[_Word]
) -> Iterator[_Anchor]:
    """Yield the objects without text, in their order."""
    text = joined(pieces)
    position = last = 0
    after_space = False
    for piece in pieces:
        if piece.text:
            position += len(piece.text)
            continue
        space = [text[place : place + 1].isspace() for place in (position - 1, position)]
        if position and space == [True, False]:
            index, next_to_following = _place_before(position, source_words, words), True
        else:
            index, next_to_following = _place(position, source_words, words), False
        after_space = next_to_following if index > last else after_space or next_to_following
        last = max(index, last)
        if position and all(space):
            yield _Anchor(last, Piece(" ", piece.marks), after_space)
        yield _Anchor(last, piece, after_space)


def _has_word(text: str) -> bool:
    return any(map(str.isalnum, text))


def _place(position: int, source_words: Sequence[Span], words: Sequence[_Word]) -> int:
    """Return the index after the translation of the word that ends before a position."""
    for number in range(len(source_words) - 1, -1, -1):
        if source_words[number].end <= position:
            found = [index for index, word in enumerate(words) if word.nearest == number]
            if found:
                return found[-1] + 1
    return 0


def _place_before(position: int, source_words: Sequence[Span], words: Sequence[_Word]) -> int:
    """Return the index of the translation of the word that begins after a position."""
    for number, span in enumerate(source_words):
        if span.start >= position:
            found = [index for index, word in enumerate(words) if word.nearest == number]
            if found:
                return found[0]
    return len(words)


def _replace_terms(
    words: Sequence[_Word],
    source_words: Sequence[Span],
    terms: Sequence[Match],
    anchors: list[_Anchor],
) -> tuple[list[_Word], list[Match]]:
    """Replace the words of each term by its translation. Also return the terms that are left."""
    result, left = list(words), []
    for term in terms:
        numbers = {
            number
            for number, span in enumerate(source_words)
            if term.span.start <= span.start < term.span.end
        }
        indices = [index for index, word in enumerate(result) if word.nearest in numbers]
        if not indices or indices[-1] - indices[0] + 1 != len(indices):
            left.append(term)
            continue
        first, last = indices[0], indices[-1]
        whole = Span(result[first].span.start, result[last].span.end)
        removed = last - first
        result[first : last + 1] = [
            _Word(term.translation, whole, result[first].nearest, result[first].marks)
        ]
        anchors[:] = [
            each._replace(place=each.place - min(removed, max(0, each.place - first - 1)))
            for each in anchors
        ]
    return result, left


def _build(
    source: ModelText, translation: str, words: Sequence[_Word], anchors: Sequence[_Anchor]
) -> Iterator[Piece]:
    """Yield the translation word by word, with the text between the words."""
    between: dict[tuple[int, bool], list[Piece]] = {}
    for index, piece, after_space in anchors:
        between.setdefault((index, after_space), []).append(piece)
    end = 0
    marks = words[0].marks if words else ()
    for index, word in enumerate(words):
        yield from between.get((index, False), ())
        yield Piece(translation[end : word.span.start], common_marks(marks, word.marks))
        yield from between.get((index, True), ())
        original = source.originals.get(word.text, Piece(word.text))
        yield original if original.atom is not None else original._replace(marks=word.marks)
        end, marks = word.span.end, word.marks
    for after_space in (False, True):
        yield from between.get((len(words), after_space), ())
    yield Piece(translation[end:], marks)
