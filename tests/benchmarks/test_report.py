import json
from pathlib import Path

from benchmarks.report import PAGE, RESULTS, TABLE, table


def test_table_has_a_row_per_line_and_a_column_per_key(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    about = {"command": "python -m benchmarks.some", "date": "2026-01-02", "machine": "a desktop"}
    lines = [about, {"system": "first", "ms": 1234.5}, {"system": "second", "ms": 2, "other": 3}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert table(path).strip().splitlines() == [
        "| system | ms |",
        "| --- | --: |",
        "| first | 1,234.5 |",
        "| second | 2 |",
        "",
        "`python -m benchmarks.some`, 2026-01-02, a desktop.",
    ]


def test_tables_of_the_page_match_the_results() -> None:
    tables = list(TABLE.finditer(PAGE.read_text(encoding="utf-8")))
    names = sorted(found[2] for found in tables)
    assert names == sorted(path.stem for path in RESULTS.glob("*.jsonl"))
    for found in tables:
        assert found[0] == found[1] + table(RESULTS / f"{found[2]}.jsonl") + found[3]
