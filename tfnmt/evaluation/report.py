"""The report of an evaluation, a Markdown page: scores, likely errors, BLEU by length, examples."""

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from tfnmt.evaluation.diagnosis import Line
from tfnmt.evaluation.metrics import STANDARD_METRICS

MAX_LINES = 20
MAX_EXAMPLES = 5
"""Limits for the lines of a ranking and for the examples of an error."""

ERRORS = {
    "repetition": "a phrase occurs three times in a row, but not in the source",
    "short": "much shorter than the source",
    "long": "much longer than the source",
    "copy": "most words are copied from the source",
    "undertranslated": "much of the source gets hardly any attention",
    "omission": "much shorter than the reference",
    "numbers": "a number of source and reference is missing, or a number is in neither",
}
"""The meaning of each likely error: the quality warnings, and the errors of `find_errors`."""

SETTINGS = {"beam_size": "beam", "length_penalty": "length penalty", "step": "step"}


class Row(NamedTuple):
    """A line as translated by the model, and by the other model if there is one."""

    ours: Line
    theirs: Line | None

    @property
    def gain(self) -> float:
        """The chrF of the model minus that of the other model."""
        return self.ours.chrf - self.theirs.chrf if self.theirs else 0.0


def report(evaluation: dict[str, Any], lines: Sequence[Line], others: Sequence[Line] = ()) -> str:
    """Return the report as Markdown.

    Args:
        evaluation: A line of evaluations.jsonl, with the fields of `diagnosis.summarize`.
        lines: The diagnosis of the model's translations.
        others: The diagnosis of the other model's translations, in a comparison.
    """
    rows = list(map(Row._make, zip_longest(lines, others)))
    parts = [
        f"# {_escaped(evaluation['model'])}",
        f"{evaluation['sentences']:,} sentences of {_escaped(evaluation['split'])}, "
        f"{evaluation['source']} to {evaluation['target']}.",
        *_scores(evaluation),
        *_errors(evaluation),
        *_lengths(evaluation),
    ]
    by_gain = sorted(rows, key=lambda row: row.gain)
    better = [row for row in by_gain[::-1] if row.gain > 0]
    worse = [row for row in by_gain if row.gain < 0]
    parts += _examples("Better than the other model", better, MAX_LINES)
    parts += _examples("Worse than the other model", worse, MAX_LINES)
    parts += _examples("Worst lines", sorted(rows, key=lambda row: row.ours.chrf), MAX_LINES)
    for error in ERRORS:
        affected = [row for row in rows if error in row.ours.errors]
        parts += _examples(error.capitalize(), affected, MAX_EXAMPLES)
    return "\n\n".join(parts) + "\n"


def _scores(evaluation: dict[str, Any]) -> Iterator[str]:
    against = evaluation.get("against")
    yield "## Scores"
    rows = [("", *(metric.label for metric in STANDARD_METRICS.values()), *SETTINGS.values())]
    for flag, system in _systems(evaluation).items():
        scores = (_interval(system[key]["score"], system[key]) for key in STANDARD_METRICS)
        rows.append((flag, *scores, *(str(system[key]) for key in SETTINGS)))
    if against:
        differences = [against["differences"][key] for key in STANDARD_METRICS]
        intervals = (_interval(each["difference"], each, "+") for each in differences)
        blank = ("",) * len(SETTINGS)
        rows.append(("difference", *intervals, *blank))
        rows.append(("p", *(f"{each['p_value']:.3f}" for each in differences), *blank))
    yield _table(rows)
    yield "Lower TER is better. " + ", ".join(
        f"{metric.label}: `{evaluation[key]['signature']}`"
        for key, metric in STANDARD_METRICS.items()
    )
    if against:
        yield f"--against is {_escaped(against['model'])}."


def _errors(evaluation: dict[str, Any]) -> Iterator[str]:
    systems = _systems(evaluation)
    yield "## Likely errors"
    rows = [("lines with", *systems, "meaning")]
    for error, meaning in ERRORS.items():
        counts = (f"{system['errors'].get(error, 0):,}" for system in systems.values())
        rows.append((error, *counts, meaning))
    yield _table(rows)


def _lengths(evaluation: dict[str, Any]) -> Iterator[str]:
    systems = _systems(evaluation)
    yield "## BLEU by length"
    rows = [("source characters", "lines", *systems)]
    for group in zip(*(system["bleu_by_length"] for system in systems.values()), strict=True):
        scores = (f"{each['bleu']:.2f}" for each in group)
        rows.append((_range(group[0]), f"{group[0]['sentences']:,}", *scores))
    yield _table(rows)


def _systems(evaluation: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the evaluated models by the name of their flag."""
    both = {"model": evaluation, "against": evaluation.get("against")}
    return {flag: system for flag, system in both.items() if system}


def _range(group: dict[str, Any]) -> str:
    end = group["longest"]
    return f"{group['shortest']} to {end}" if end is not None else f"{group['shortest']} and more"


def _examples(title: str, rows: Sequence[Row], limit: int) -> Iterator[str]:
    """Yield a section with the first `limit` rows, or nothing if there are no rows."""
    if rows:
        yield f"## {title} ({min(limit, len(rows)):,} of {len(rows):,})"
        yield from map(_example, rows[:limit])


def _example(row: Row) -> str:
    ours, theirs = row
    notes = [f"chrF {ours.chrf:.1f}" + (f", other model {theirs.chrf:.1f}" if theirs else "")]
    texts = [("source", ours.source), ("reference", ours.reference), ("model", ours.translation)]
    if theirs:
        texts.append(("against", theirs.translation))
    head = f"**Line {ours.number}** ({'; '.join([*notes, *ours.errors])})"
    return "\n".join([head, "", *(f"- {name}: {_escaped(text)}" for name, text in texts)])


def _interval(value: float, bounds: dict[str, Any], sign: str = "") -> str:
    return f"{value:{sign}.2f} [{bounds['low']:{sign}.2f}, {bounds['high']:{sign}.2f}]"


def _table(rows: Sequence[Sequence[str]]) -> str:
    head, *body = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, "|---" * len(rows[0]) + "|", *body])


def _escaped(text: str) -> str:
    """Escape the characters that Markdown interprets."""
    return re.sub(r"([\\`*_{}\[\]<>#|~&])", r"\\\1", text)
