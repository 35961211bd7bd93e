"""Translations that look wrong: what can be seen without knowing the languages.

How often each warning is right is measured in docs/warnings.md.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

LONGEST_PHRASE = 4
REPEATS = 3
"""A phrase of so many words at most, so many times in a row, is a repetition."""

SHORT, LONG = 0.4, 2.5
SLACK = 4
"""Pieces of a translation for each piece of its source, and the difference that always may be."""

COPIED_WORDS = 4
COPIED_SHARE = 0.8
"""A copy has so many words, and at least this share of them in the source."""

TOUCHED = 0.2
UNTOUCHED_SHARE = 0.5
"""A source piece that all target pieces together give less attention is untouched; so many are
much of a source.
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
    if _repeats(translation) and not _repeats(source):
        yield "repetition"
    if lengths[1] < SHORT * lengths[0] - SLACK:
        yield "short"
    if lengths[1] > LONG * lengths[0] + SLACK:
        yield "long"
    if _is_copy(source, translation):
        yield "copy"
    if _untouched(reading.attention) > UNTOUCHED_SHARE:
        yield "untouched"


def _repeats(text: str) -> bool:
    """Whether a phrase comes several times in a row."""
    words = text.split()
    for size in range(1, LONGEST_PHRASE + 1):
        same = 0  # words in a row that are those of a phrase before
        for before, word in zip(words, words[size:], strict=False):
            same = same + 1 if word == before else 0
            if same == size * (REPEATS - 1):
                return True
    return False


def _is_copy(source: str, translation: str) -> bool:
    words = translation.casefold().split()
    known = set(source.casefold().split())
    copied = sum(word in known for word in words)
    return len(words) >= COPIED_WORDS and copied >= COPIED_SHARE * len(words)


def _untouched(attention: np.ndarray) -> float:
    """The share of source pieces, without eos, that get hardly any attention [T, S]."""
    received = attention.sum(axis=0)[:-1]
    return float(np.mean(received < TOUCHED)) if received.size else 0.0
