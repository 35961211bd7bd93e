"""Protected text: URLs, addresses, measures, code and placeholders, which come back unchanged.

Models are trained on plain text and do not copy such strings. So the model reads a stand-in that
it does copy, a number or a name. If the stand-in does not come back exactly once, another one is
tried; the last resort is to translate the text around it in parts.
"""

import re
from bisect import bisect_right
from collections.abc import Container, Sequence
from itertools import accumulate
from typing import NamedTuple

from tfnmt.documents.alignment import WORD, find_words
from tfnmt.documents.segments import Piece, joined
from tfnmt.documents.sentences import Span

UNITS = (
    r"%|‰|°[CF]?|[kmcdµn]?m[²³23]?|km/h|m/s|mph|[kmµ]?g|t|[mcdh]?[lL]|[kMGT]?i?[Bb](?:it/s|/s)?|"
    r"[kMG]?Hz|[kM]?W(?:h)?|[kM]?J|kcal|[mk]?V|m?A(?:h)?|[hk]?Pa|bar|ms|px|pt|dpi|ha|ft|in|lbs?|oz|"
    r"[€$£¥]|EUR|USD|GBP|CHF"
)
NUMBER = r"\d{1,18}(?:[.,:]\d{1,9}){0,6}"

# The lengths are bounded, so that the time grows linearly with the text.
PROTECTED = re.compile(
    "|".join(
        (
            r"`[^`\n]{1,200}`",
            r"</?[A-Za-z][^<>\n]{0,300}>",
            r"(?:https?|ftp|mailto|file):[^\s<>\"']{1,2000}",
            r"\bwww\.[^\s<>\"']{1,2000}",
            r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}",
            r"\{\{[^{}\n]{0,100}\}\}|\$?\{[^{}\n]{0,100}\}|\$[A-Z_][A-Z0-9_]{0,60}\b",
            r"(?<![\d%])%(?:\(\w{1,60}\))?(?:\d{1,2}\$)?[-+#0]?\d{0,3}(?:\.\d{1,2})?"
            r"(?:l{0,2}[diouxXeEfgGcrsa@]\b|(?<=\d)(?!\w))",
            r"\b\w{1,60}\(\)|\b[A-Za-z]\w{0,60}_\w{1,60}\b|(?<![\w/])(?:~|\.{1,2})?(?:/[\w.-]{1,80}){2,20}",
            rf"[€$£¥] ?{NUMBER}",
            rf"(?<![\w.,]){NUMBER}[ \u00a0\u202f]?(?:{UNITS})(?!\w)",
        )
    )
)

URL_END = ".,;:!?)]}'\""
"""Characters that belong to the sentence at the end of a URL or an address."""

NUMBERS = ("123", "345", "567", "789", "234", "456", "678")
NAMES = ("Tom", "Boston", "Toronto", "Berlin", "Peter", "Paris")
"""Words that models copy. docs/how-to/documents.md reports how often."""

MEASURE = re.compile(r"[€£¥]|\$ ?\d|\d")
"""The beginning of a number with a unit."""

ATTEMPTS = 2


class Protected(NamedTuple):
    """A protected part of a sentence."""

    span: Span
    piece: Piece
    """The piece that the part becomes in the translation."""


def find_protected(pieces: Sequence[Piece], strings: bool = True) -> list[Protected]:
    """Return the protected parts of a text in order, without overlaps.

    Args:
        pieces: The text.
        strings: Whether URLs and the like are protected. Objects with a text always are.
    """
    text = joined(pieces)
    found: list[Protected] = []
    position = 0
    for piece in pieces:
        if piece.atom is not None and piece.text.strip():
            found.append(Protected(Span(position, position + len(piece.text)), piece))
        position += len(piece.text)
    taken = [each.span for each in found]
    taken_ends = [span.end for span in taken]
    piece_ends = list(accumulate(len(piece.text) for piece in pieces))
    for span in _matches(text) if strings else ():
        following = bisect_right(taken_ends, span.start)
        if following == len(taken) or taken[following].start >= span.end:
            marks = pieces[bisect_right(piece_ends, span.start)].marks
            found.append(Protected(span, Piece(span.of(text), marks)))
    return sorted(found, key=lambda each: each.span)


def _matches(text: str) -> list[Span]:
    spans = []
    for match in PROTECTED.finditer(text):
        part = match[0]
        if part[0] not in "`<{$%" and not part.endswith("()"):
            part = part.rstrip(URL_END) or part
        spans.append(Span(match.start(), match.start() + len(part)))
    return spans


def choose_stand_ins(
    text: str, protected: Sequence[Protected], attempt: int, excluded: Container[str] = ()
) -> list[str] | None:
    """Return different stand-ins that a text does not contain; None if there are too few.

    A number stands for a measure at first, and a name for anything else. The second attempt is the
    opposite.

    Args:
        text: The text.
        protected: The parts to replace.
        attempt: The number of attempts before this one.
        excluded: Words in lower case that are no stand-ins.
    """
    used = set(WORD.findall(text))
    words = [
        iter(word for word in each if word not in used and word.lower() not in excluded)
        for each in (NUMBERS, NAMES)
    ]
    chosen = []
    for _, piece in protected:
        is_measure = bool(MEASURE.match(piece.text))
        chosen.append(next(words[(attempt == 0) != is_measure], None))
    complete = [word for word in chosen if word is not None]
    return complete if len(complete) == len(chosen) else None


def is_complete(translation: str, stand_ins: Sequence[str]) -> bool:
    """Return whether a translation has every stand-in once."""
    words = [word.of(translation) for word in find_words(translation)]
    return all(words.count(each) == 1 for each in stand_ins)
