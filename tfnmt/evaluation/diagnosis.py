"""Diagnosis of a translated text, line by line: the score of each line and its likely errors."""

import re
from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

from tfnmt.data.corpora.text_files import Pair
from tfnmt.evaluation.metrics import bleu

if TYPE_CHECKING:
    from tfnmt.decoding.lines import Translation

BOUNDS = (25, 50, 100, 200, 400)
"""The length groups start at 0 and at these lengths of the source in characters. Characters are
used because words cannot be counted in every script.
"""

OMISSION_RATIO = 0.6
MIN_OMITTED_CHARACTERS = 10
"""An omission is a translation whose length is below OMISSION_RATIO times that of the reference,
and at least MIN_OMITTED_CHARACTERS shorter.
"""


class Line(NamedTuple):
    """A line of the text, with its translation and the diagnosis."""

    number: int  # from 1
    source: str
    reference: str
    translation: str
    chrf: float  # not BLEU: sentence BLEU is 0 for most bad lines
    errors: tuple[str, ...]  # quality warnings, then errors found with the reference


class Group(NamedTuple):
    """The lines in a range of source lengths, in characters."""

    shortest: int
    longest: int | None  # None: no limit
    sentences: int
    bleu: float


def diagnose(pairs: Iterable[Pair], translations: Iterable["Translation"]) -> list[Line]:
    """Return a Line for each (source, reference) pair and the translation of its source."""
    from sacrebleu.metrics import CHRF

    chrf = CHRF()
    lines = []
    for number, (pair, result) in enumerate(zip(pairs, translations, strict=True), start=1):
        (source, reference), translation = pair, result.best.text
        score = chrf.sentence_score(translation, [reference]).score
        errors = *result.warnings, *find_errors(source, translation, reference)
        lines.append(Line(number, source, reference, translation, score, errors))
    return lines


def summarize(lines: Sequence[Line]) -> dict[str, Any]:
    """Return `{"errors": {error: lines}, "bleu_by_length": [...]}`, the fields of an evaluation."""
    return {
        "errors": dict(Counter(error for line in lines for error in line.errors).most_common()),
        "bleu_by_length": [group._asdict() for group in group_by_length(lines)],
    }


def group_by_length(lines: Iterable[Line]) -> list[Group]:
    """Return the corpus BLEU of each length group that has lines."""
    groups: list[list[Line]] = [[] for _ in range(len(BOUNDS) + 1)]
    for line in lines:
        groups[bisect(BOUNDS, len(line.source))].append(line)
    limits = zip((0, *BOUNDS), (*(bound - 1 for bound in BOUNDS), None), strict=True)
    return [
        Group(*limit, len(group), _corpus_bleu(group))
        for limit, group in zip(limits, groups, strict=True)
        if group
    ]


def _corpus_bleu(lines: list[Line]) -> float:
    return round(bleu([line.translation for line in lines], [line.reference for line in lines]), 4)


# --- Errors ---------------------------------------------------------------------------------------


def find_errors(source: str, translation: str, reference: str) -> Iterator[str]:
    """Yield the likely errors that a comparison with the reference shows: omission, numbers."""
    if _is_omission(translation, reference):
        yield "omission"
    if _has_wrong_numbers(source, translation, reference):
        yield "numbers"


def _is_omission(translation: str, reference: str) -> bool:
    length, expected = len(translation), len(reference)
    return length < OMISSION_RATIO * expected and length <= expected - MIN_OMITTED_CHARACTERS


def _has_wrong_numbers(source: str, translation: str, reference: str) -> bool:
    """Return whether a number of source and reference is missing, or a number is in neither."""
    in_source, in_translation, in_reference = map(find_numbers, (source, translation, reference))
    missing = (in_source & in_reference) - in_translation
    added = in_translation - (in_source | in_reference)
    return bool(missing or added)


# --- Numbers --------------------------------------------------------------------------------------

# 1,000 1.000 1 000 1'000 ١٬٠٠٠ and 1,50,000: three digits after the last separator, and the same
# separator everywhere.
GROUPED = r"(?!0)\d{1,3}(?P<separator>[.,٬'’ \u00a0\u202f])(?:\d{2,3}(?P=separator))*\d{3}(?!\d)"
# 1.5 1,5 ١٫٥, but neither 1.2.3 nor 12.03.2024, which are three numbers.
DECIMAL = r"(?<!\d[.,٫])\d+[.,٫]\d+(?![.,٫]?\d)"
NUMBER = re.compile(rf"(?<!\d){GROUPED}(?P<fraction>[.,٫]\d+(?![.,٫]?\d))?|{DECIMAL}|\d+")


def find_numbers(text: str) -> Counter[Decimal]:
    """Count the numbers in a text, in digits of any script. Number words are not found.

    A separator before exactly three digits is a thousands separator, so 1.234 and 1,234 are the
    same number in every language.
    """
    return Counter(map(_value, NUMBER.finditer(text)))


def _value(match: re.Match[str]) -> Decimal:
    number, fraction = match[0], match["fraction"] or ""
    if match["separator"]:
        digits = "".join(filter(str.isdecimal, number.removesuffix(fraction)))
        number = digits + fraction
    return Decimal(re.sub(r"[,٫]", ".", number))
