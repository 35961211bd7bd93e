"""How a text was translated, line by line: how well, and what is wrong."""

from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sacrebleu.metrics import CHRF

from tfnmt.data.files import Pair
from tfnmt.evaluation.faults import find_faults
from tfnmt.evaluation.scores import bleu

if TYPE_CHECKING:
    from tfnmt.decoding.answers import Answer

BOUNDS = (25, 50, 100, 200, 400)
"""Where one group of lengths ends and the next begins: characters of the source, for words are not
to be counted in every script.
"""


class Line(NamedTuple):
    """A line of the text and what became of it."""

    number: int  # from 1
    source: str
    reference: str
    translation: str
    chrf: float  # sentence BLEU would be 0 for most bad lines
    faults: tuple[str, ...]  # warnings too


class Group(NamedTuple):
    """The lines whose sources have so many characters."""

    shortest: int
    longest: int | None  # None: no limit
    sentences: int
    bleu: float


def diagnose(pairs: Iterable[Pair], answers: Iterable["Answer"]) -> list[Line]:
    """A line for each pair of source and reference, and the answer to its source."""
    chrf = CHRF()
    lines = []
    for number, (pair, answer) in enumerate(zip(pairs, answers, strict=True), start=1):
        (source, reference), translation = pair, answer.best.text
        score = chrf.sentence_score(translation, [reference]).score
        faults = *answer.warnings, *find_faults(source, translation, reference)
        lines.append(Line(number, source, reference, translation, score, faults))
    return lines


def findings(lines: Sequence[Line]) -> dict[str, Any]:
    """`{"faults": {fault: lines}, "bleu_by_length": [...]}`, as an evaluation keeps them."""
    return {
        "faults": dict(Counter(fault for line in lines for fault in line.faults).most_common()),
        "bleu_by_length": [group._asdict() for group in by_length(lines)],
    }


def by_length(lines: Iterable[Line]) -> list[Group]:
    """The corpus BLEU of the lines of each length; none where there are no lines."""
    groups: list[list[Line]] = [[] for _ in range(len(BOUNDS) + 1)]
    for line in lines:
        groups[bisect(BOUNDS, len(line.source))].append(line)
    limits = zip((0, *BOUNDS), (*(bound - 1 for bound in BOUNDS), None), strict=True)
    return [
        Group(*limit, len(group), _bleu(group))
        for limit, group in zip(limits, groups, strict=True)
        if group
    ]


def _bleu(lines: list[Line]) -> float:
    return round(bleu([line.translation for line in lines], [line.reference for line in lines]), 4)
