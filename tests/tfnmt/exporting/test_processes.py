"""A fresh process answers once, and does not outlive the question."""

import os
from pathlib import Path

import pytest

from tfnmt.errors import UserError
from tfnmt.exporting.processes import fresh_process


def script(folder: Path, *lines: str) -> str:
    path = folder / "script.py"
    path.write_text("\n".join(["import json, sys", *lines]))
    return str(path)


def test_it_prints_what_it_makes_of_its_arguments(tmp_path: Path) -> None:
    reversing = script(tmp_path, "print(*reversed(json.load(sys.stdin)))")
    with fresh_process(reversing) as ask:
        assert ask("no answer", "a b", Path("c"), 1) == "1 c a b\n"


def test_its_last_words_are_told_where_it_fails(tmp_path: Path) -> None:
    failing = script(tmp_path, "sys.exit('first\\n' + json.load(sys.stdin)[0] + ' is missing')")
    told = pytest.raises(UserError, match=r"^no answer: x is missing$")
    with fresh_process(failing) as ask, told:
        ask("no answer", "x")


def test_one_that_dies_before_it_is_asked_is_told_as_well(tmp_path: Path) -> None:
    told = pytest.raises(UserError, match=r"no answer: ModuleNotFoundError.*nothing_of_this_name")
    with fresh_process(script(tmp_path, "import nothing_of_this_name")) as ask, told:
        ask("no answer", "x" * 1_000_000)


def test_one_that_is_never_asked_ends(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    noting = script(tmp_path, "import os", f"open({str(fifo)!r}, 'w').write(str(os.getpid()))",
                    "sys.stdin.read()")  # fmt: skip
    with fresh_process(noting):
        process = int(fifo.read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
