"""An evaluation as a Markdown page: scores, faults, lengths, and the lines to look at."""

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from tfnmt.evaluation.diagnosis import Line
from tfnmt.evaluation.metrics import LABELS, METRICS

LISTED = 20
EXAMPLES = 5
"""Lines that a list has at most, and a fault's."""

MEANINGS = {
    "repetition": "a phrase comes three times in a row, and not in the source",
    "short": "much shorter than the source",
    "long": "much longer than the source",
    "copy": "most words are the source's",
    "untouched": "much of the source gets hardly any attention",
    "omission": "much shorter than the reference",
    "numbers": "a number of source and reference is lost, or there is one that neither has",
}

SETTINGS = {"beam_size": "beam", "length_penalty": "length penalty", "step": "step"}


class Row(NamedTuple):
    """A line as the system translates it, and as the other does, where there is another."""

    ours: Line
    theirs: Line | None

    @property
    def gain(self) -> float:
        """How much better ours is, in chrF."""
        return self.ours.chrf - self.theirs.chrf if self.theirs else 0.0


def report(evaluation: dict[str, Any], lines: Sequence[Line], others: Sequence[Line] = ()) -> str:
    """The page of a line of evaluations.jsonl; `others` are the lines of the other system."""
    rows = list(map(Row._make, zip_longest(lines, others)))
    parts = [
        f"# {_escaped(evaluation['model'])}",
        f"{evaluation['sentences']:,} sentences of {_escaped(evaluation['split'])}, "
        f"{evaluation['source']} to {evaluation['target']}.",
        *_scores(evaluation),
        *_faults(evaluation),
        *_lengths(evaluation),
    ]
    by_gain = sorted(rows, key=lambda row: row.gain)
    parts += _list("Better than the other", [row for row in by_gain[::-1] if row.gain > 0], LISTED)
    parts += _list("Worse than the other", [row for row in by_gain if row.gain < 0], LISTED)
    parts += _list("Worst lines", sorted(rows, key=lambda row: row.ours.chrf), LISTED)
    for fault in MEANINGS:
        found = [row for row in rows if fault in row.ours.faults]
        parts += _list(fault.capitalize(), found, EXAMPLES)
    return "\n\n".join(parts) + "\n"


def _scores(evaluation: dict[str, Any]) -> Iterator[str]:
    against = evaluation.get("against")
    yield "## Scores"
    rows = [("", *(LABELS[metric] for metric in METRICS), *SETTINGS.values())]
    for flag, system in _systems(evaluation).items():
        scores = (_interval(system[metric]["score"], system[metric]) for metric in METRICS)
        rows.append((flag, *scores, *(str(system[key]) for key in SETTINGS)))
    if against:
        differences = [against["differences"][metric] for metric in METRICS]
        intervals = (_interval(each["difference"], each, "+") for each in differences)
        blank = ("",) * len(SETTINGS)
        rows.append(("difference", *intervals, *blank))
        rows.append(("p", *(f"{each['p_value']:.3f}" for each in differences), *blank))
    yield _table(rows)
    yield "Less TER is better. " + ", ".join(
        f"{LABELS[metric]}: `{evaluation[metric]['signature']}`" for metric in METRICS
    )
    if against:
        yield f"--against is {_escaped(against['model'])}."


def _faults(evaluation: dict[str, Any]) -> Iterator[str]:
    systems = _systems(evaluation)
    yield "## What looks wrong"
    rows = [("", *systems, "lines in which")]
    for fault, meaning in MEANINGS.items():
        counts = (f"{system['faults'].get(fault, 0):,}" for system in systems.values())
        rows.append((fault, *counts, meaning))
    yield _table(rows)


def _lengths(evaluation: dict[str, Any]) -> Iterator[str]:
    systems = _systems(evaluation)
    yield "## BLEU by length"
    rows = [("characters of the source", "lines", *systems)]
    for group in zip(*(system["bleu_by_length"] for system in systems.values()), strict=True):
        scores = (f"{each['bleu']:.2f}" for each in group)
        rows.append((_range(group[0]), f"{group[0]['sentences']:,}", *scores))
    yield _table(rows)


def _systems(evaluation: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What was evaluated, by its flag."""
    both = {"model": evaluation, "against": evaluation.get("against")}
    return {flag: system for flag, system in both.items() if system}


def _range(group: dict[str, Any]) -> str:
    end = group["longest"]
    return f"{group['shortest']} to {end}" if end is not None else f"{group['shortest']} and more"


def _list(title: str, rows: Sequence[Row], most: int) -> Iterator[str]:
    """A section of the first ones; none of none."""
    if rows:
        yield f"## {title} ({min(most, len(rows)):,} of {len(rows):,})"
        yield from map(_line, rows[:most])


def _line(row: Row) -> str:
    ours, theirs = row
    marks = [f"chrF {ours.chrf:.1f}" + (f", the other's {theirs.chrf:.1f}" if theirs else "")]
    texts = [("source", ours.source), ("reference", ours.reference), ("model", ours.translation)]
    if theirs:
        texts.append(("against", theirs.translation))
    head = f"**Line {ours.number}** ({'; '.join([*marks, *ours.faults])})"
    return "\n".join([head, "", *(f"- {name}: {_escaped(text)}" for name, text in texts)])


def _interval(value: float, bounds: dict[str, Any], sign: str = "") -> str:
    return f"{value:{sign}.2f} [{bounds['low']:{sign}.2f}, {bounds['high']:{sign}.2f}]"


def _table(rows: Sequence[Sequence[str]]) -> str:
    head, *body = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, "|---" * len(rows[0]) + "|", *body])


def _escaped(text: str) -> str:
    """The text as Markdown shows it character by character."""
    return re.sub(r"([\\`*_{}\[\]<>#|~&])", r"\\\1", text)
