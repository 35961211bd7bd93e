"""Whole commands by turns: what is measured, and what cannot be."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import job
from tfnmt.errors import UserError

READ = "import sys, time; lines = open(sys.argv[1], newline='\\n').readlines()"


def system(name: str, what: str) -> str:
    """A command that does something with its `lines`."""
    return f'--system={name}={sys.executable} -W ignore -c "{READ}; {what}" {{input}}'


def test_systems_are_timed_and_compared_line_by_line(
    call: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [f"a line\u2028{number}\n" for number in range(5)]
    (tmp_path / "lines").write_text("".join(lines), encoding="utf-8")
    slow = "time.sleep(0.1 * len(lines)); "
    call(
        job, f"--input={tmp_path / 'lines'}", "--turns=1",
        system("same", f"{slow}print(*lines, sep='', end='')"),
        system("other", f"{slow}print(*lines[:-1], 'x', sep='')"),
    )  # fmt: skip
    same, other = map(json.loads, capsys.readouterr().out.splitlines())
    assert (same["system"], other["system"]) == ("same", "other")
    assert (same["sentences"], same["same_lines"], other["same_lines"]) == (5, 5, 4)
    assert same["sentences_per_s"] > 0


@pytest.mark.parametrize(
    ("content", "command", "message"),
    [
        (None, "echo {input}", "No such file"),
        ("one\n", "echo {input}", "two sentences at least"),
        ("one\ntwo\n", "no-such-command {input}", "no-such-command: No such file"),
        ("one\ntwo\n", "echo {input}", "1 of 2 lines"),
    ],
)
def test_what_cannot_be_measured_is_told(
    call: Callable[..., None], tmp_path: Path, content: str | None, command: str, message: str
) -> None:
    if content is not None:
        (tmp_path / "lines").write_text(content)
    with pytest.raises(UserError, match=message):
        call(job, f"--input={tmp_path / 'lines'}", f"--system=x={command}")
