"""Translation in processes of their own: killed, interrupted, and reading from a pipe."""

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
from tfnmt.runtime.resumable_file import ResumableFile

TIMEOUT = 300
LINES = 5000
"""Enough lines to stop a process long before it has finished."""

Process = subprocess.Popen[bytes]
Start = Callable[..., Process]


@pytest.fixture
def start(tiny_run: Path) -> Iterator[Start]:
    """Start a translation. When the test ends, a process that is still running is killed."""
    running = []

    def start_process(*arguments: str, **files: int) -> Process:
        command = [
            sys.executable,
            "-m",
            "tfnmt.translate",
            f"--model={tiny_run}",
            "--beam_size=1",
            *arguments,
        ]
        # Tests that run in the background ignore SIGINT, and the process would inherit that.
        default_sigint = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
        process = subprocess.Popen(
            command, stderr=subprocess.PIPE, preexec_fn=default_sigint, **files
        )
        running.append(process)
        return process

    yield start_process
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


def wait_for_lines(process: Process, file: ResumableFile) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not (file.partial.exists() and file.partial.stat().st_size):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_killed_and_resumed_translation_equals_an_uninterrupted_one(
    start: Start, long_file: Path, tmp_path: Path
) -> None:
    uninterrupted, killed = ResumableFile(tmp_path / "whole"), ResumableFile(tmp_path / "killed")
    process = start(f"--input={long_file}", f"--output={uninterrupted.path}")
    assert process.wait(TIMEOUT) == 0

    arguments = f"--input={long_file}", f"--output={killed.path}"
    process = start(*arguments)
    wait_for_lines(process, killed)
    process.kill()
    assert process.wait(TIMEOUT) == -signal.SIGKILL
    assert not killed.path.exists()
    done = killed.partial.read_bytes()
    assert uninterrupted.path.read_bytes().startswith(done)
    assert 0 < done.count(b"\n") < LINES

    # As after a kill in the middle of a line and of a window.
    third = done.index(b"\n", len(done) // 3) + 4
    killed.partial.write_bytes(done[:third])
    resumed = start(*arguments, "--resume")
    _, errors = resumed.communicate(timeout=TIMEOUT)
    assert resumed.returncode == 0
    lines = done.count(b"\n", 0, third)
    assert f"{killed.path}: resuming after line {lines:,}\n" in errors.decode()
    assert killed.path.read_bytes() == uninterrupted.path.read_bytes()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [".killed.job", ".whole.job", "in", "killed", "whole"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_keeps_the_finished_lines(
    start: Start, long_file: Path, tmp_path: Path, number: signal.Signals
) -> None:
    file = ResumableFile(tmp_path / "out")
    process = start(f"--input={long_file}", f"--output={file.path}")
    wait_for_lines(process, file)
    process.send_signal(number)
    _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 128 + number
    *lines, last = errors.decode().splitlines()
    assert any(str(file.partial) in line and "--resume" in line for line in lines)
    assert last == "tfnmt: interrupted"
    assert file.partial.read_bytes().endswith(b"\n")
    assert file.job_path.exists()
    assert not file.path.exists()


def test_file_is_translated_without_standard_streams(
    tiny_run: Path, long_file: Path, tmp_path: Path
) -> None:
    lines = long_file.read_text().splitlines()[:20]
    long_file.write_text("".join(f"{line}\n" for line in lines))
    flags = f"--model={tiny_run} --beam_size=1 --input={long_file} --output={tmp_path / 'out'}"
    command = f"{sys.executable} -m tfnmt.translate {flags}"
    done = subprocess.run(["bash", "-c", f"{command} <&- >&- 2>&-"], timeout=TIMEOUT)
    assert done.returncode == 0
    assert len((tmp_path / "out").read_text().splitlines()) == len(lines)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".out.job", "in", "out"]


# --- Streams --------------------------------------------------------------------------------------


class Stream:
    """A translation that reads a pipe, one line at a time."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.timer = threading.Timer(TIMEOUT, process.kill)  # then `translate` returns b""
        self.timer.start()

    def translate(self, line: str) -> bytes:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()
        return self.process.stdout.readline()


@pytest.fixture
def stream(start: Start) -> Iterator[Stream]:
    # With scores, because the model has learned so little that a translation may be empty.
    stream = Stream(start("--scores", stdin=subprocess.PIPE, stdout=subprocess.PIPE))
    yield stream
    stream.timer.cancel()


def test_stream_writes_a_translation_before_the_next_line_arrives(stream: Stream) -> None:
    first, second = (source for source, _ in islice(grammar.pairs("test"), 2, 4))
    outputs = [stream.translate(line) for line in (first, "", second, first)]
    assert all(output.endswith(b"\n") for output in outputs), stream.process.poll()
    assert outputs[0] == outputs[3]
    assert outputs[1] == b"0.0000\t\n"
    assert outputs[1] not in (outputs[0], outputs[2])
    assert outputs[0] != outputs[2]
    rest, _ = stream.process.communicate(timeout=TIMEOUT)  # closes stdin
    assert rest == b""
    assert stream.process.returncode == 0


def test_ctrl_c_ends_a_stream_that_waits_for_a_line(stream: Stream) -> None:
    assert stream.translate("a dog").endswith(b"\n")
    stream.process.send_signal(signal.SIGINT)
    # Not with communicate, which would close stdin.
    assert stream.process.wait(TIMEOUT) == 130
    assert stream.process.stderr
    assert stream.process.stderr.read().decode().splitlines()[-1] == "tfnmt: interrupted"
