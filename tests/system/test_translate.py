"""Translating in processes of their own: killed, interrupted, at the end of a pipe."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import pytest

from tfnmt.data.corpora.toy import grammar
from tfnmt.runtime.files import GrowingFile

PATIENCE = 300
NEWLINE = b"\n"
LINES = 5000
"""So many that a process can be stopped long before it is through."""

Process = subprocess.Popen[bytes]
Start = Callable[..., Process]

pytestmark = pytest.mark.slow  # each starts TensorFlow


@pytest.fixture
def start(tiny_run: Path) -> Iterator[Start]:
    """Starts a translation; what still runs when the test ends is killed."""
    running = []

    def begin(*arguments: str, **files: int) -> Process:
        command = [
            sys.executable, "-m", "tfnmt.translate", f"--model={tiny_run}", "--beam_size=1",
            *arguments,
        ]  # fmt: skip
        # Tests that run in the background ignore SIGINT, and would hand that on.
        listening = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
        process = subprocess.Popen(command, stderr=subprocess.PIPE, preexec_fn=listening, **files)
        running.append(process)
        return process

    yield begin
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def long_file(tmp_path: Path) -> Path:
    path = tmp_path / "in"
    sources = (source for source, _ in islice(grammar.pairs("train"), LINES))
    path.write_text("".join(f"{source}\n" for source in sources))
    return path


def wait_for_lines(process: Process, file: GrowingFile) -> None:
    deadline = time.monotonic() + PATIENCE
    while not (file.partial.exists() and file.partial.stat().st_size):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_killed_translation_goes_on_to_what_it_would_have_been(
    start: Start, long_file: Path, tmp_path: Path
) -> None:
    whole, killed = GrowingFile(tmp_path / "whole"), GrowingFile(tmp_path / "killed")
    peaceful = start(f"--input={long_file}", f"--output={whole.path}")
    assert peaceful.wait(PATIENCE) == 0

    arguments = f"--input={long_file}", f"--output={killed.path}"
    process = start(*arguments)
    wait_for_lines(process, killed)
    process.kill()
    assert process.wait(PATIENCE) == -signal.SIGKILL
    assert not killed.path.exists()
    done = killed.partial.read_bytes()
    assert whole.path.read_bytes().startswith(done)
    assert 0 < done.count(b"\n") < LINES

    # As a kill leaves it that comes in the middle of a line, and of a window.
    third = done.index(b"\n", len(done) // 3) + 4
    killed.partial.write_bytes(done[:third])
    resumed = start(*arguments, "--resume")
    _, errors = resumed.communicate(timeout=PATIENCE)
    assert resumed.returncode == 0
    assert f"{done.count(NEWLINE, 0, third):,} lines are done" in errors.decode()
    assert killed.path.read_bytes() == whole.path.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "killed", "whole"]


def test_ctrl_c_keeps_what_is_done_and_exits_130(
    start: Start, long_file: Path, tmp_path: Path
) -> None:
    file = GrowingFile(tmp_path / "out")
    process = start(f"--input={long_file}", f"--output={file.path}")
    wait_for_lines(process, file)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    *told, last = errors.decode().splitlines()
    assert f"tfnmt: what is done lies in {file.partial}; --resume goes on with it" in told
    assert last == "tfnmt: interrupted"
    assert file.partial.read_bytes().endswith(b"\n")
    assert file.job_path.exists()
    assert not file.path.exists()


class Stream:
    """A translation at the end of a pipe, which is asked line by line."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.timer = threading.Timer(PATIENCE, process.kill)  # then what comes is empty
        self.timer.start()

    def ask(self, line: str) -> bytes:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()
        return self.process.stdout.readline()


@pytest.fixture
def stream(start: Start) -> Iterator[Stream]:
    # With scores, for the model has learnt so little that it may say nothing.
    stream = Stream(start("--scores", stdin=subprocess.PIPE, stdout=subprocess.PIPE))
    yield stream
    stream.timer.cancel()


def test_a_line_comes_out_before_the_next_one_goes_in(stream: Stream) -> None:
    first, second = (source for source, _ in islice(grammar.pairs("test"), 2, 4))
    answers = [stream.ask(line) for line in (first, "", second, first)]
    assert all(answer.endswith(b"\n") for answer in answers), stream.process.poll()
    assert answers[0] == answers[3]
    assert answers[1] == b"0.0000\t\n"
    assert answers[1] not in (answers[0], answers[2])
    assert answers[0] != answers[2]
    rest, _ = stream.process.communicate(timeout=PATIENCE)  # which ends the lines
    assert rest == b""
    assert stream.process.returncode == 0


def test_ctrl_c_ends_a_stream_that_waits_for_a_line(stream: Stream) -> None:
    assert stream.ask("a dog").endswith(b"\n")
    stream.process.send_signal(signal.SIGINT)
    # Not with communicate, which would end the lines.
    assert stream.process.wait(PATIENCE) == 130
    assert stream.process.stderr
    assert stream.process.stderr.read().decode().splitlines()[-1] == "tfnmt: interrupted"
