"""Positions of the sentences of a text.

`tfnmt.decoding.lines` splits sentences in the same way, and keeps the text between them.
"""

import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import sentencex

LINE = re.compile(r"[^\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")
OTHER_SPACE = re.compile(r"[^\S ]")
CONTENT = re.compile(r"\S(?:.*\S)?", re.DOTALL)


class Span(NamedTuple):
    """A part of a text, in code points."""

    start: int
    end: int

    def of(self, text: str) -> str:
        """Return this part of the text."""
        return text[self.start : self.end]


def split_sentences(text: str, language: str, limit: int | None = None) -> list[Span]:
    """Return the sentences of each line without surrounding white space.

    Args:
        text: Any text.
        language: Its language.
        limit: Number of sentences after which to stop; None splits the whole text.
    """
    lines = split_lines(text)
    return list(
        islice((span for line in lines for span in split_line(text, line, language)), limit)
    )


def split_lines(text: str) -> list[Span]:
    """Return the lines that are not blank, without surrounding white space."""
    spans = (Span(*match.span()) for match in LINE.finditer(text))
    return [stripped for span in spans for stripped in _strip(text, span)]


def split_line(text: str, line: Span, language: str) -> Iterator[Span]:
    """Yield the sentences of one line without surrounding white space."""
    # White space other than ASCII makes sentencex panic. Only the lengths of its results are used.
    plain = OTHER_SPACE.sub(" ", line.of(text))
    start = line.start
    for sentence in sentencex.segment(language, plain):
        yield from _strip(text, Span(start, start + len(sentence)))
        start += len(sentence)


def _strip(text: str, span: Span) -> Iterator[Span]:
    """Yield the span without white space at its ends; yield nothing for a blank span."""
    if match := CONTENT.search(text, span.start, span.end):
        yield Span(*match.span())
