"""Processes whose standard streams are closed, full, not blocking, or pipes without a reader."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = """
import sys
from pathlib import Path
from absl import flags
from tfnmt.cli import run_command
from tfnmt.progress import log, progress_bar

def main(values, positional):
    with Path(positional[0]).open("w") as file:
        log("a status line")
        for number in progress_bar(range(3), "counting", "numbers"):
            print("a status line", file=sys.stderr)
            file.write(f"{number}\\n")
        for line in positional[1:]:
            print(line)

run_command(main, flags.FlagValues(), "Writes a file, and prints its other arguments.")
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "command.py"
    path.write_text(COMMAND)
    return path


def run(
    script: Path, redirections: str, *arguments: object, **files: int
) -> subprocess.CompletedProcess[bytes]:
    shell = ["bash", "-c", f'exec "$@" {redirections}', "-"]
    return subprocess.run(
        [*shell, sys.executable, script, *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        **({"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | files),
    )


@pytest.mark.parametrize(
    "redirections",
    ["<&-", ">&-", "2>&-", "<&- >&- 2>&-", "2>/dev/full", ">/dev/full 2>/dev/full", "2</dev/null"],
)
def test_unusable_stream_does_not_stop_a_command_that_prints_no_result(
    script: Path, tmp_path: Path, redirections: str
) -> None:
    done = run(script, redirections, tmp_path / "file")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "file").read_text() == "0\n1\n2\n"
    assert done.stdout == b""
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("redirections", ["2>&-", "2>/dev/full"])
def test_result_does_not_contain_the_status_lines_of_a_closed_stderr(
    script: Path, tmp_path: Path, redirections: str
) -> None:
    done = run(script, redirections, tmp_path / "file", "a result")
    assert (done.returncode, done.stdout) == (0, b"a result\n")


@pytest.mark.parametrize(
    ("redirections", "problem"),
    [
        (">&-", "not open for writing"),
        ("1</dev/null", "not open for writing"),
        ("<&- >&-", "not open for writing"),
        (">/dev/full", "No space left on device"),
    ],
)
@pytest.mark.parametrize("length", [1, 10_000])
def test_lost_result_is_an_error(
    script: Path, tmp_path: Path, redirections: str, problem: str, length: int
) -> None:
    done = run(script, redirections, tmp_path / "file", "a result " * length)
    assert done.returncode == 1
    last = done.stderr.decode().splitlines()[-1]
    assert last.startswith(f"tfnmt: stdout: {problem}; ")
    assert b"Traceback" not in done.stderr
    assert (tmp_path / "file").read_text() == "0\n1\n2\n"


def test_lost_result_without_stderr_is_an_exit_code(script: Path, tmp_path: Path) -> None:
    done = run(script, ">&- 2>&-", tmp_path / "file", "a result")
    assert done.returncode == 1
    assert (tmp_path / "file").read_text() == "0\n1\n2\n"


def test_output_named_dev_stdout_is_not_lost_silently(script: Path, tmp_path: Path) -> None:
    done = run(script, ">&-", "/dev/stdout")
    assert done.returncode == 1
    assert b"No space left on device" in done.stderr


def test_missing_reader_of_stderr_does_not_stop_a_command(script: Path, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = run(script, "", tmp_path / "file", "a result", stderr=writer)
    os.close(writer)
    assert (done.returncode, done.stdout) == (0, b"a result\n")


def test_full_pipe_that_does_not_block_is_an_error(script: Path, tmp_path: Path) -> None:
    """Other programs, such as node, make the pipes that they pass on non-blocking."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    done = run(script, "", tmp_path / "file", "a result " * 10_000, stdout=writer)
    assert done.returncode == 1
    assert done.stderr.decode().splitlines()[-1].startswith("tfnmt: stdout: ")
    assert b"Traceback" not in done.stderr
    os.close(writer)
    os.close(reader)


def test_child_process_inherits_replacements_of_closed_streams(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import subprocess\n"
        "from tfnmt.runtime.streams import open_missing_descriptors\n"
        "open_missing_descriptors()\n"
        "command = ['readlink', '/proc/self/fd/0', '/proc/self/fd/2']\n"
        f"with open({str(tmp_path / 'file')!r}, 'w') as file:\n"
        "    subprocess.run(command, stdout=file)\n"
    )
    run(script, "<&- >&- 2>&-")
    assert (tmp_path / "file").read_text() == "/dev/null\n/dev/null\n"


# --- Stdin ----------------------------------------------------------------------------------------

READING = """
import sys
from absl import flags
from tfnmt.cli import run_command
from tfnmt.runtime.streams import stdin_lines

def main(values, positional):
    for line in stdin_lines():
        print(line.decode(), end="", flush=True)

run_command(main, flags.FlagValues(), "Prints stdin.")
"""


@pytest.mark.parametrize(
    ("redirections", "code", "problem"),
    [("<&-", 2, "closed"), ("0>/dev/null", 1, "not open for reading")],
)
def test_unreadable_stdin_is_an_error(
    script: Path, redirections: str, code: int, problem: str
) -> None:
    script.write_text(READING)
    done = run(script, redirections)
    assert (done.returncode, done.stdout) == (code, b"")
    assert done.stderr.decode().startswith(f"tfnmt: stdin: {problem}; ")
    assert done.stderr.count(b"\n") == 1


def test_empty_pipe_that_does_not_block_is_read_to_its_end(script: Path) -> None:
    script.write_text(READING)
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    with subprocess.Popen(
        [sys.executable, script],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=reader,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        for line in (b"one\n", b"two\n"):
            os.write(writer, line)
            assert process.stdout.readline() == line
        os.close(writer)
        assert process.communicate()[0] == b""
    os.close(reader)


# --- As a library ---------------------------------------------------------------------------------


def test_log_in_a_process_without_stderr_prints_nothing(script: Path) -> None:
    script.write_text("from tfnmt.progress import log; log('a status line'); print('data')")
    done = run(script, "2>&-")
    assert (done.returncode, done.stdout) == (0, b"data\n")


def test_stderr_can_be_silenced_in_a_process_without_it(script: Path) -> None:
    script.write_text(
        "from tfnmt.runtime.startup import silence_stderr\n"
        "with silence_stderr():\n"
        "    print('data')\n"
    )
    done = run(script, "2>&-")
    assert (done.returncode, done.stdout) == (0, b"data\n")
