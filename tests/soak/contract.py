"""The contract of a served model: every signature answers, the same in rows and in columns."""

import math
from typing import Any

import requests

from benchmarks.measurement import tell
from benchmarks.rest import Rest


def keeps_contract(rest: Rest, texts: list[str]) -> bool:
    """Whether every signature answers, alike in rows and in columns; prints a line for each."""
    verdicts = [_check_signature(rest, *one, texts) for one in rest.signatures().items()]
    return bool(verdicts) and all(verdicts)  # all are asked, whatever the first gives


def _check_signature(rest: Rest, name: str, inputs: set[str], texts: list[str]) -> bool:
    columns = dict.fromkeys(inputs, texts)
    instances = [dict.fromkeys(inputs, text) for text in texts]
    try:
        by_rows = rest.predict(name, {"instances": instances})
        by_columns = rest.predict(name, {"inputs": columns})
    except (requests.RequestException, ValueError) as error:
        tell("contract", signature=name, right=False, error=str(error))
        return False
    if isinstance(by_columns, dict):
        rows = [
            dict(zip(by_columns, row, strict=True))
            for row in zip(*by_columns.values(), strict=True)
        ]
    else:
        rows = by_columns
    right = len(rows) == len(texts) and _same(by_rows, rows)
    tell("contract", signature=name, right=right)
    return right


def _same(one: Any, other: Any) -> bool:
    """Equal, numbers nearly."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-4, abs_tol=1e-4)
    return bool(one == other)
