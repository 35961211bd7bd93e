"""The sentences of a text: where they are, so that all between them stays as it is."""

import re
from collections.abc import Iterator, Sequence
from heapq import nlargest
from itertools import pairwise
from typing import NamedTuple

import sentencex

from app.engines.engine import Alternative, Pair, Translation

LINE = re.compile(r"[^\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")
OTHER_SPACE = re.compile(r"[^\S ]")
CONTENT = re.compile(r"\S(?:.*\S)?", re.DOTALL)


class Span(NamedTuple):
    """A part of a text, in code points."""

    start: int
    end: int

    def of(self, text: str) -> str:
        """That part."""
        return text[self.start : self.end]


class Way(NamedTuple):
    """A choice of translations up to a sentence; it holds on to the way there, copying nothing."""

    score: float
    text: str = ""
    before: "Way | None" = None

    def texts(self) -> list[str]:
        """What was chosen, the first sentence first."""
        chosen, way = [], self
        while way.before is not None:
            chosen.append(way.text)
            way = way.before
        return chosen[::-1]


def sentences(text: str, language: str) -> list[Span]:
    """The sentences, line by line, without the white space around them."""
    return [span for line in lines(text) for span in _sentences(text, line, language)]


def lines(text: str) -> list[Span]:
    """The lines that are not blank, without the white space around them."""
    spans = (Span(*found.span()) for found in LINE.finditer(text))
    return [inner for span in spans for inner in _stripped(text, span)]


def _sentences(text: str, line: Span, language: str) -> Iterator[Span]:
    # White space other than ASCII's makes the segmenter stumble; it is only to find places.
    plain = OTHER_SPACE.sub(" ", line.of(text))
    start = line.start
    for sentence in sentencex.segment(language, plain):
        yield from _stripped(text, Span(start, start + len(sentence)))
        start += len(sentence)


def _stripped(text: str, span: Span) -> Iterator[Span]:
    """The span without white space at its ends; nothing where nothing is left."""
    if found := CONTENT.search(text, span.start, span.end):
        yield Span(*found.span())


def join(text: str, spans: Sequence[Span], translations: Sequence[Translation]) -> Translation:
    """The text with its sentences translated; the score of several is their mean.

    Its alternatives are the next best ways to choose one translation a sentence.
    """
    if not spans:
        return Translation(text, 0.0, False)
    wanted = max(len(one.alternatives) for one in translations) + 1
    ways = [Way(0.0)]
    for one in translations:
        choices = (Alternative(one.text, one.score), *one.alternatives)
        longer = (Way(way.score + score, text_, way) for way in ways for text_, score in choices)
        ways = nlargest(wanted, longer, key=lambda way: way.score)
    best, *others = (
        Alternative(_replaced(text, spans, way.texts()), way.score / len(spans)) for way in ways
    )
    truncated = any(one.truncated for one in translations)
    return Translation(best.text, best.score, truncated, tuple(others))


def _replaced(text: str, spans: Sequence[Span], parts: Sequence[str]) -> str:
    """The text with other parts in the places of the spans."""
    kept = [Span(0, spans[0].start), *(Span(a.end, b.start) for a, b in pairwise(spans))]
    joined = "".join(gap.of(text) + part for gap, part in zip(kept, parts, strict=True))
    return joined + text[spans[-1].end :]


def pairs(pair: Pair, source: str, target: str) -> list[tuple[Span, Span]]:
    """Which sentence of a text became which of its translation.

    Where the numbers of sentences in a line differ, the line is a pair, where those of lines
    differ, the text.
    """
    text, translation = pair
    here, there = lines(text), lines(translation)
    if not here or not there:
        return []
    if len(here) != len(there):
        return [(_around(here), _around(there))]
    found: list[tuple[Span, Span]] = []
    for line, other in zip(here, there, strict=True):
        parts = list(_sentences(text, line, source))
        others = list(_sentences(translation, other, target))
        same = len(parts) == len(others)
        found += zip(parts, others, strict=True) if same else [(line, other)]
    return found


def _around(spans: Sequence[Span]) -> Span:
    return Span(spans[0].start, spans[-1].end)
