"""Tests that the names, files, keys and values in docs/concepts/paper.md exist."""

import ast
import re
from pathlib import Path

import pytest
import yaml

from tests.docs.pages import ROOT
from tfnmt.config import Config, flatten

PAPER = (ROOT / "docs" / "concepts" / "paper.md").read_text(encoding="utf-8")
NAMES = re.findall(r"\[`([\w/]+\.py):([\w.]+)`\]\(\.\./\.\./([\w/.]+)\)", PAPER)
"""Shown file, name and linked file of each reference, as in
[`model/attention.py:causal_mask`](../../tfnmt/model/attention.py)."""

VALUES = re.findall(r"^\| [^|]+ \| ([\d.e-]+) \| ([\d.e-]+) \| `([\w.]+)` \|$", PAPER, re.M)


def names_in(path: Path) -> set[str]:
    """Return the functions, classes and constants of a file, and the methods of its classes."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = (each for each in node.body if isinstance(each, ast.FunctionDef))
            found |= {f"{node.name}.{method.name}" for method in methods}
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


@pytest.mark.parametrize(("shown", "name", "path"), NAMES)
def test_every_name_exists_in_its_file(shown: str, name: str, path: str) -> None:
    assert path.endswith(shown)
    assert name in names_in(ROOT / path)


SECTIONS = [
    *("1", "2", "3", "3.1", "3.2", "3.2.1", "3.2.2", "3.2.3", "3.3", "3.4", "3.5", "4"),
    *("5.1", "5.2", "5.3", "5.4", "6.1", "6.2", "6.3"),
    *(f"equation {number}" for number in (1, 2, 3)),
    *(f"table {number}" for number in (1, 2, 3, 4)),
    *("figure 1", "figure 2", "figures 3 to 5"),
]


def test_every_section_equation_table_and_figure_is_listed() -> None:
    rows = "\n".join(re.findall(r"^\| ([^|]+) \|", PAPER, re.M))
    for section in SECTIONS:
        assert re.search(rf"(^|, ){re.escape(section)}(,|$)", rows, re.M), section
    assert len(NAMES) > 30


@pytest.mark.parametrize(
    "key", sorted({*re.findall(r"\[`(\w+\.\w+)`\]\(\.\./reference/configuration", PAPER)})
)
def test_every_configuration_key_exists(key: str) -> None:
    assert key in flatten(Config())


@pytest.mark.parametrize(("column", "preset"), [(0, "wmt14"), (1, "wmt14-big")])
def test_hyperparameters_are_those_of_the_preset(column: int, preset: str) -> None:
    tree = yaml.safe_load((ROOT / "configs" / f"{preset}.yaml").read_text())
    assert len(VALUES) == 18
    for row in VALUES:
        section, _, key = row[2].partition(".")
        assert tree[section][key] == float(row[column]), row[2]
