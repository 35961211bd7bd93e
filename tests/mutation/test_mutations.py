"""The tests that docs/concepts/injected-bugs.md lists for a bug must catch it."""

import json
import re
import subprocess
import sys

import pytest

from tests.mutation.mutations import MUTATIONS
from tfnmt.runs.run import base_folder

ROW = re.compile(r"^\|(?: `(\w+)` )?\s*\| `([\w/]+\.py)` \| (.+) \|$")
"""A row of the page's table of tests. Without a mutation, the row continues the one above."""


def listed_tests() -> dict[str, set[str]]:
    """Return the tests that the page lists for each mutation, as pytest node ids."""
    tests: dict[str, set[str]] = {}
    mutation = ""
    for line in (
        (base_folder() / "docs" / "concepts" / "injected-bugs.md")
        .read_text(encoding="utf-8")
        .splitlines()
    ):
        if row := ROW.match(line):
            mutation = row[1] or mutation
            names = re.findall(r"`(\w+)`", row[3])
            tests.setdefault(mutation, set()).update(f"{row[2]}::test_{name}" for name in names)
    return tests


def test_page_lists_tests_for_every_mutation() -> None:
    listed = listed_tests()
    assert set(listed) == set(MUTATIONS)
    assert all(listed.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTATIONS)
def test_mutation_fails_the_tests_listed_on_the_page(name: str) -> None:
    command = [sys.executable, "-m", "tests.mutation.run", name, "--tests"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=base_folder(), check=False)
    assert done.returncode == 0, done.stderr
    failed = set(json.loads(done.stdout.splitlines()[-1])["failed"])
    assert listed_tests()[name] <= failed
