"""Faults of a translation that a reference shows; those that show without one are warnings.

What a reference does as well is no fault: it may spell a number out, or say things in few words.
"""

from collections.abc import Iterator

from tfnmt.evaluation.numbers import find_numbers

OMITTED = 0.6
LEAST_OMITTED = 10
"""A translation of fewer characters than this share of its reference's, and of so many fewer at
least, has left something out.
"""


def find_faults(source: str, translation: str, reference: str) -> Iterator[str]:
    """The names of what is wrong: omission, numbers."""
    if _omits(translation, reference):
        yield "omission"
    if _has_other_numbers(source, translation, reference):
        yield "numbers"


def _omits(translation: str, reference: str) -> bool:
    ours, theirs = len(translation), len(reference)
    return ours < OMITTED * theirs and ours <= theirs - LEAST_OMITTED


def _has_other_numbers(source: str, translation: str, reference: str) -> bool:
    """Whether one is lost that source and reference have, or there is one that neither has."""
    given, ours, right = map(find_numbers, (source, translation, reference))
    lost, added = (given & right) - ours, ours - (given | right)
    return bool(lost or added)
