"""Values of a generator that runs in a separate process."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tfnmt.runtime.processes import values_of_process


def squares(count: int) -> Iterator[int]:
    yield from (number**2 for number in range(count))


def process_ids() -> Iterator[int]:
    yield os.getpid()


def killed_after(count: int) -> Iterator[int]:
    yield from range(count)
    os.kill(os.getpid(), signal.SIGKILL)


def sleep(path: str) -> Iterator[int]:
    Path(path).write_text(str(os.getpid()))
    time.sleep(60)
    yield 0


@pytest.mark.parametrize("count", [0, 3])
def test_values_are_those_of_the_generator(count: int) -> None:
    assert values_of_process(squares, count) == ([*squares(count)], 0)


def test_generator_runs_in_another_process() -> None:
    (number,), _ = values_of_process(process_ids)
    assert number != os.getpid()


def test_values_before_a_kill_are_returned() -> None:
    assert values_of_process(killed_after, 2) == ([0, 1], -signal.SIGKILL)


def test_process_ends_with_its_killed_parent(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    code = (
        "from tests.tfnmt.runtime.test_processes import sleep\n"
        "from tfnmt.runtime.processes import values_of_process\n"
        f"values_of_process(sleep, {str(file)!r})"
    )
    parent = subprocess.Popen([sys.executable, "-c", code])
    wait_until(lambda: file.exists() and file.read_text() != "")
    parent.kill()
    parent.wait()
    wait_until(lambda: not is_running(int(file.read_text())))


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def is_running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
