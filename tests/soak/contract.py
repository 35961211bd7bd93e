"""Contract of a served model: each signature answers, with equal results for rows and columns."""

import math
from functools import partial
from typing import Any

import requests

from benchmarks.measurement import print_result
from benchmarks.rest import RestClient


def check_contract(rest: RestClient, texts: list[str]) -> bool:
    """Call every signature with rows and with columns, and print a JSON line for each.

    Returns:
        True if the model has signatures and all of them pass.
    """
    # A list, so that all signatures are called even after one has failed.
    passed = [_check_signature(rest, *one, texts) for one in rest.signatures().items()]
    return bool(passed) and all(passed)


def _check_signature(rest: RestClient, name: str, inputs: set[str], texts: list[str]) -> bool:
    instances = [rest.row(inputs, partial(str, text)) for text in texts]
    columns = {name: [row[name] for row in instances] for name in inputs}
    try:
        by_rows = rest.predict(name, {"instances": instances})
        by_columns = rest.predict(name, {"inputs": columns})
    except (requests.RequestException, ValueError) as error:
        print_result("contract", signature=name, passed=False, error=str(error))
        return False
    if isinstance(by_columns, dict):
        rows = [
            dict(zip(by_columns, row, strict=True))
            for row in zip(*by_columns.values(), strict=True)
        ]
    else:
        rows = by_columns
    passed = len(rows) == len(texts) and _equal(by_rows, rows)
    print_result("contract", signature=name, passed=passed)
    return passed


def _equal(one: Any, other: Any) -> bool:
    """Compare two JSON values; floats may differ by 1e-4, relative or absolute."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-4, abs_tol=1e-4)
    return bool(one == other)
