import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import job
from tfnmt.errors import UserError

READ = "import sys, time; lines = open(sys.argv[1], newline='\\n').readlines()"


def system(name: str, code: str) -> str:
    """Return a `--system` flag whose command runs Python code on the input's `lines`."""
    return f'--system={name}={sys.executable} -W ignore -c "{READ}; {code}" {{input}}'


def test_job_measures_systems_and_compares_their_lines(
    call: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [f"a line\u2028{number}\n" for number in range(5)]
    (tmp_path / "lines").write_text("".join(lines), encoding="utf-8")
    sleep = "time.sleep(0.1 * len(lines)); "
    call(
        job,
        f"--input={tmp_path / 'lines'}",
        "--turns=1",
        system("same", f"{sleep}print(*lines, sep='', end='')"),
        system("other", f"{sleep}print(*lines[:-1], 'x', sep='')"),
    )
    same, other = map(json.loads, capsys.readouterr().out.splitlines())
    assert (same["system"], other["system"]) == ("same", "other")
    assert (same["sentences"], same["same_lines"], other["same_lines"]) == (5, 5, 4)
    assert same["sentences_per_s"] > 0


@pytest.mark.parametrize(
    ("content", "command", "message"),
    [
        (None, "echo {input}", "No such file"),
        ("one\n", "echo {input}", "fewer than two sentences"),
        ("one\ntwo\n", "no-such-command {input}", "no-such-command: No such file"),
        ("one\ntwo\n", "echo {input}", "1 of 2 lines"),
    ],
)
def test_job_reports_unusable_input_and_failed_commands(
    call: Callable[..., None], tmp_path: Path, content: str | None, command: str, message: str
) -> None:
    if content is not None:
        (tmp_path / "lines").write_text(content)
    with pytest.raises(UserError, match=message):
        call(job, f"--input={tmp_path / 'lines'}", f"--system=x={command}")
