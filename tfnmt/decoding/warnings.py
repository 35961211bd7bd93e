"""Quality warnings: signs of a bad translation that need no knowledge of the languages.

docs/reference/quality-flags.md reports how often each warning is right.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tfnmt.documents.tokens import LANGUAGE

MAX_PHRASE_TOKENS = 10
REPEATS = 3
"""A phrase of at most MAX_PHRASE_TOKENS tokens, REPEATS times in a row, is a repetition. Twice can
be right, as in `main dans la main`.
"""

SHORT, LONG = 0.5, 2.0
SLACK = 4
"""Limits for target tokens per source token, and a difference that is always accepted."""

COPIED_WORDS = 4
COPIED_SHARE = 0.8
"""A copy has at least this many words, and at least this share of them occurs in the source."""

MIN_MAX_ATTENTION, MIN_TOTAL_ATTENTION = 0.15, 0.5
UNDERTRANSLATED_SHARE = 0.5
"""A source token is undertranslated if no target token gives it MIN_MAX_ATTENTION and all of them
together give it less than MIN_TOTAL_ATTENTION. The warning needs this share of such tokens. Either
limit alone is wrong more often, the first one on long sources, where attention is spread thinly.
"""


class ForcedDecoding(NamedTuple):
    """A source and its force-decoded translation, EOS included; S and T tokens."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    log_probs: tuple[float, ...]  # of the target tokens
    attention: np.ndarray  # [T, S]


def find_warnings(source: str, translation: str, decoded: ForcedDecoding) -> Iterator[str]:
    """Yield the ids of the warnings: repetition, short, long, copy, undertranslated."""
    source_length, target_length = len(decoded.source), len(decoded.target)
    if _repeats(decoded.target) and not _repeats(decoded.source):
        yield "repetition"
    if target_length < SHORT * source_length - SLACK:
        yield "short"
    if target_length > LONG * source_length + SLACK:
        yield "long"
    if _is_copy(source, translation):
        yield "copy"
    if _undertranslated_share(decoded) > UNDERTRANSLATED_SHARE:
        yield "undertranslated"


def _repeats(tokens: Sequence[str]) -> bool:
    """Return whether a phrase repeats. Digits and punctuation (10,000 or an ellipsis) may."""
    words = [token for token in tokens if _has_letter(token)]
    for size in range(1, MAX_PHRASE_TOKENS + 1):
        same = 0  # tokens in a row that equal the token one phrase earlier
        for before, token in zip(words, words[size:], strict=False):
            same = same + 1 if token == before else 0
            if same == size * (REPEATS - 1):
                return True
    return False


def _is_copy(source: str, translation: str) -> bool:
    """Return whether most words are copied. Capitalized words may be names and do not count."""
    words = [word for word in _words(translation) if word[0].isalpha() and not word[0].isupper()]
    known = set(_words(source.casefold()))
    copied = sum(word in known for word in words)
    return len(words) >= COPIED_WORDS and copied >= COPIED_SHARE * len(words)


def _undertranslated_share(decoded: ForcedDecoding) -> float:
    """Return the share of source tokens with letters that get almost no attention."""
    most, total = decoded.attention.max(axis=0, initial=0.0), decoded.attention.sum(axis=0)
    undertranslated = (most < MIN_MAX_ATTENTION) & (total < MIN_TOTAL_ATTENTION)
    words = [
        n
        for n, token in enumerate(decoded.source[:-1])
        if _has_letter(token) and not LANGUAGE.fullmatch(token)
    ]
    return float(undertranslated[words].mean()) if words else 0.0


def _has_letter(token: str) -> bool:
    return any(map(str.isalpha, token))


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text)
