"""Faults that are planted on purpose: tests see each of them, those that docs/faults.md names."""

import json
import re
import subprocess
import sys

import pytest

from tests.mutation.mutations import FAULTS
from tfnmt.runs.run import home

ROW = re.compile(r"^\|(?: `(\w+)` )?\s*\| `([\w/]+\.py)` \| (.+) \|$")
"""A row of the table of tests: the fault, or none where the row goes on with the one above."""


def named_tests() -> dict[str, set[str]]:
    """The tests that the page names for each fault, as pytest calls them."""
    tests: dict[str, set[str]] = {}
    fault = ""
    for line in (home() / "docs" / "faults.md").read_text(encoding="utf-8").splitlines():
        if row := ROW.match(line):
            fault = row[1] or fault
            names = re.findall(r"`(\w+)`", row[3])
            tests.setdefault(fault, set()).update(f"{row[2]}::test_{name}" for name in names)
    return tests


def test_the_page_names_tests_for_every_fault() -> None:
    named = named_tests()
    assert set(named) == set(FAULTS)
    assert all(named.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_the_tests_that_the_page_names_see_the_fault(name: str) -> None:
    command = [sys.executable, "-m", "tests.mutation.run", name, "--tests"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=home(), check=False)
    assert done.returncode == 0, done.stderr
    failed = set(json.loads(done.stdout.splitlines()[-1])["failed"])
    assert named_tests()[name] <= failed
