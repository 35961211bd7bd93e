"""Translations that look wrong: what can be seen without knowing the languages.

How often each warning is right is measured in docs/warnings.md.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

LONGEST_PHRASE = 10
REPEATS = 3
"""A phrase of so many pieces at most, so many times in a row, is a repetition; twice can be right,
as in `main dans la main`.
"""

SHORT, LONG = 0.5, 2.0
SLACK = 4
"""Pieces of a translation for each piece of its source, and the difference that always may be."""

COPIED_WORDS = 4
COPIED_SHARE = 0.8
"""A copy has so many words, and at least this share of them in the source."""

TOUCHED_BY_ONE, TOUCHED_BY_ALL = 0.15, 0.5
UNTOUCHED_SHARE = 0.5
"""A source piece that no target piece gives so much of its attention, nor all together so much, is
untouched; more than this share of the pieces is much of a source. Either limit alone is wrong more
often, the first one on long sources, over which attention is spread.
"""


class Reading(NamedTuple):
    """What the model makes of a source and a translation, eos included; T and S pieces."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    log_probs: tuple[float, ...]  # of the target's pieces
    attention: np.ndarray  # [T, S]


def find_warnings(source: str, translation: str, reading: Reading) -> Iterator[str]:
    """The names of what looks wrong: repetition, short, long, copy, untouched."""
    lengths = len(reading.source), len(reading.target)
    if _repeats(reading.target) and not _repeats(reading.source):
        yield "repetition"
    if lengths[1] < SHORT * lengths[0] - SLACK:
        yield "short"
    if lengths[1] > LONG * lengths[0] + SLACK:
        yield "long"
    if _is_copy(source, translation):
        yield "copy"
    if _untouched(reading) > UNTOUCHED_SHARE:
        yield "untouched"


def _repeats(pieces: Sequence[str]) -> bool:
    """Whether a phrase comes several times in a row; not in 10,000 or an ellipsis."""
    spoken = [piece for piece in pieces if _is_spoken(piece)]
    for size in range(1, LONGEST_PHRASE + 1):
        same = 0  # pieces in a row that are those of a phrase before
        for before, piece in zip(spoken, spoken[size:], strict=False):
            same = same + 1 if piece == before else 0
            if same == size * (REPEATS - 1):
                return True
    return False


def _is_copy(source: str, translation: str) -> bool:
    """Whether most words are the source's; names, which rightly are, are passed over."""
    words = [word for word in _words(translation) if word[0].isalpha() and not word[0].isupper()]
    known = set(_words(source.casefold()))
    copied = sum(word in known for word in words)
    return len(words) >= COPIED_WORDS and copied >= COPIED_SHARE * len(words)


def _untouched(reading: Reading) -> float:
    """The share of the source's pieces that the target pieces hardly attend to."""
    most, total = reading.attention.max(axis=0), reading.attention.sum(axis=0)
    untouched = (most < TOUCHED_BY_ONE) & (total < TOUCHED_BY_ALL)
    spoken = [n for n, piece in enumerate(reading.source[:-1]) if _is_spoken(piece)]
    return float(untouched[spoken].mean()) if spoken else 0.0


def _is_spoken(piece: str) -> bool:
    """Whether it has a letter, so is neither a number nor a mark."""
    return any(map(str.isalpha, piece))


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text)
