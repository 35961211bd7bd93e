"""Commands in processes of their own."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tfnmt.diversification.processes import run_command

COMMAND = """
import signal, sys, time
from pathlib import Path
folder, code = sys.argv[1:]
def stop(number, frame):
    (Path(folder) / "stopped").touch()
    sys.exit(128 + number)
signal.signal(signal.SIGTERM, stop)
(Path(folder) / "started").touch()
time.sleep(60 if code == "wait" else 0)
sys.exit(int(code))
"""
PARENT = """
import signal, sys
from tfnmt.diversification.processes import run_command
def interrupt(number, frame):
    raise KeyboardInterrupt
if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, interrupt)
    run_command("waiting_command", [sys.argv[1], "wait"])
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "waiting_command.py").write_text(COMMAND)
    (tmp_path / "parent.py").write_text(PARENT)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_exit_code_is_that_of_the_command(folder: Path) -> None:
    assert run_command("waiting_command", [str(folder), "3"]) == 3
    assert run_command("waiting_command", [str(folder), "0"]) == 0


@pytest.mark.parametrize(
    ("number", "clean"), [(signal.SIGTERM, True), (signal.SIGINT, True), (signal.SIGKILL, False)]
)
def test_command_ends_with_its_parent(folder: Path, number: signal.Signals, clean: bool) -> None:
    """A signal lets the command save its work. SIGKILL ends it at once."""
    environment = os.environ | {"PYTHONPATH": f"{Path(__file__).parents[3]}:{folder}"}
    with subprocess.Popen(
        [sys.executable, str(folder / "parent.py"), str(folder)],
        env=environment,
        stderr=subprocess.PIPE,
    ) as parent:
        wait_until(lambda: (folder / "started").exists())
        parent.send_signal(number)
        parent.communicate(timeout=60)  # until the command, which has the same stderr, has ended
    assert (folder / "stopped").exists() == clean


def wait_until(condition: object) -> None:
    deadline = time.monotonic() + 60
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.05)
