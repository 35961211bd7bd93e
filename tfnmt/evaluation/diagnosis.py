"""How a text was translated, line by line: how well, and what is wrong."""

from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sacrebleu.metrics import CHRF

from tfnmt.data.corpora.text_files import Pair
from tfnmt.evaluation.metrics import bleu

if TYPE_CHECKING:
    from tfnmt.decoding.lines import Answer
import re
from collections.abc import Iterator
from decimal import Decimal

# 1,000 1.000 1 000 1'000 ١٬٠٠٠ and 1,50,000: three digits after the last mark, one mark throughout.
GROUPED = r"(?!0)\d{1,3}(?P<mark>[.,٬'’ \u00a0\u202f])(?:\d{2,3}(?P=mark))*\d{3}(?!\d)"
# 1.5 1,5 ١٫٥, but neither 1.2.3 nor 12.03.2024, which are three numbers.
DECIMAL = r"(?<!\d[.,٫])\d+[.,٫]\d+(?![.,٫]?\d)"
NUMBER = re.compile(rf"(?<!\d){GROUPED}(?P<rest>[.,٫]\d+(?![.,٫]?\d))?|{DECIMAL}|\d+")


def find_numbers(text: str) -> Counter[Decimal]:
    """How often each number comes, in digits of any script.

    A mark before exactly three digits is taken to group them, so 1.234 and 1,234 are one number in
    every language; words are no numbers.
    """
    return Counter(map(_value, NUMBER.finditer(text)))


def _value(match: re.Match[str]) -> Decimal:
    number, rest = match[0], match["rest"] or ""
    if match["mark"]:
        whole = "".join(filter(str.isdecimal, number.removesuffix(rest)))
        number = whole + rest
    return Decimal(re.sub(r"[,٫]", ".", number))


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
