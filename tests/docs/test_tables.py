"""Tables of the pages. A line that is not a row would break a table silently."""

import re
from itertools import groupby
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT
from tfnmt.training.sizing import SIZES

FENCED = re.compile(r"^```.*?^```$", re.M | re.S)
RULE = re.compile(r"\|( *:?-+:? *\|)+")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_tables_are_complete(page: Path) -> None:
    lines = FENCED.sub("", page.read_text(encoding="utf-8")).splitlines()
    paragraphs = [list(some) for blank, some in groupby(lines, lambda line: not line) if not blank]
    for rows in paragraphs:
        if rows[0].startswith("|"):
            assert RULE.fullmatch(rows[1]), f"rows without a header: {rows[0]}"
            assert not [row for row in rows if not row.startswith("|")]
            assert {_cells(row) for row in rows} == {_cells(rows[0])}, rows[0]


def _cells(row: str) -> int:
    return row.replace("\\|", "").count("|")


def test_sizes_on_the_page_are_those_of_the_code() -> None:
    rows = (ROOT / "docs" / "how-to" / "train.md").read_text(encoding="utf-8").splitlines()
    expected = [
        f"| {size.name} | {_short(size.text_tokens)} | {_short(size.read_tokens)} | "
        f"{size.layers[0]}+{size.layers[1]} | {size.d_model}, {size.d_ff:,} | "
        f"{size.vocab_size:,} | {size.batch_tokens:,} | {size.max_epochs} |"
        for size in SIZES
    ]
    first = rows.index(expected[0])
    assert rows[first : first + len(expected)] == expected


def _short(count: int) -> str:
    return f"{count / 1e6:g} M" if count >= 1e6 else f"{count:,}" if count else ""
