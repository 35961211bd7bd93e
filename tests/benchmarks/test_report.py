import json
from pathlib import Path

from benchmarks.report import PAGES, PLACE, RESULTS, table


def test_a_table_has_a_row_a_line_and_the_keys_that_any_line_has(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    about = {"command": "python -m benchmarks.some", "date": "2026-01-02", "machine": "a desk"}
    lines = [about, {"system": "ours", "ms": 1234.5}, {"system": "theirs", "ms": 2, "other": 3}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert table(path).strip().splitlines() == [
        "| system | ms |",
        "| --- | --: |",
        "| ours | 1,234.5 |",
        "| theirs | 2 |",
        "",
        "`python -m benchmarks.some`, 2026-01-02, a desk.",
    ]


def test_the_tables_of_the_pages_are_as_measured() -> None:
    places = [place for page in PAGES for place in PLACE.finditer(page.read_text())]
    assert places
    for place in places:
        assert place[0] == place[1] + table(RESULTS / f"{place[2]}.jsonl") + place[3]
