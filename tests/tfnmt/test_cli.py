import errno
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from absl import flags

import tfnmt
import tfnmt.prepare
import tfnmt.score
import tfnmt.translate
from tfnmt.cli import Main, decoding_changes, define_data_dir, define_decoding, run_command
from tfnmt.errors import UsageError, UserError

REPOSITORY = Path(tfnmt.__file__).resolve().parent.parent
USAGE = "Echoes its arguments.\n\n    python -m tfnmt.echo TEXT\n"

SCRIPT = """
import sys
from absl import flags
from tfnmt.cli import run_command

VALUES = flags.FlagValues()
flags.DEFINE_string("model", None, "a run", flag_values=VALUES)

def main(values, positional):
    for number in range(100_000):
        print("line", number)

run_command(main, VALUES, "Prints many lines.")
"""


def make_flags() -> flags.FlagValues:
    values = flags.FlagValues()
    flags.DEFINE_string("model", None, "the run to use", flag_values=values)
    flags.DEFINE_boolean("quick", False, "hurry", flag_values=values)
    flags.DEFINE_list("files", None, "some files", flag_values=values)
    define_data_dir(values)
    define_decoding(values)
    return values


def echo(values: Any, positional: list[str]) -> None:
    print(values.model, values.beam_size, values.quick, positional)


def exit_code(main: Main, *arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        run_command(main, make_flags(), USAGE, list(arguments))
    assert isinstance(caught.value.code, int)
    return caught.value.code


def stderr_only(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


def test_main_receives_flags_and_positional_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(echo, "one", "--model=runs/a", "two", "--beam_size", "3", "--quick") == 0
    assert capsys.readouterr().out == "runs/a 3 True ['one', 'two']\n"


def test_omitted_flags_have_their_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(echo) == 0
    assert capsys.readouterr().out == "None None False []\n"


@pytest.mark.parametrize("argument", ["--help", "-h", "--helpshort", "--helpfull"])
def test_help_prints_the_usage_and_every_flag(
    capsys: pytest.CaptureFixture[str], argument: str
) -> None:
    assert exit_code(echo, "text", argument) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert captured.out.startswith(USAGE)
    listed = captured.out.partition("Flags:\n")[2]
    shown = re.findall(r"^  (--\S+)", listed, re.MULTILINE)  # continuation lines are indented
    assert shown == [
        "--beam_size=...",
        "--data_dir=...",
        "--files=...",
        "--length_penalty=...",
        "--max_length=...",
        "--min_length=...",
        "--model=...",
        "--no_repeat_ngram=...",
        "--[no]quick",
    ]


@pytest.mark.parametrize(
    ("argument", "problem"),
    [("--beam_size=x", "not an integer"), ("--length_penalty=x", "not a number")],
)
def test_value_that_is_no_number_is_refused_in_words(
    capsys: pytest.CaptureFixture[str], argument: str, problem: str
) -> None:
    assert exit_code(echo, argument) == 2
    assert stderr_only(capsys) == f"tfnmt: {argument}: {problem}; see --help\n"


def test_unknown_flag_suggests_a_known_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(echo, "--modle=x") == 2
    assert stderr_only(capsys).startswith("tfnmt: --modle: unknown flag; did you mean --model? ")


@pytest.mark.parametrize("argument", ["--beam_size=four", "--length_penalty=x", "--quick=perhaps"])
def test_invalid_value_is_a_usage_error(capsys: pytest.CaptureFixture[str], argument: str) -> None:
    assert exit_code(echo, argument) == 2
    line = stderr_only(capsys)
    assert line.startswith(f"tfnmt: {argument}")
    assert line.count("\n") == 1
    assert line.endswith("; see --help\n")


@pytest.mark.parametrize("value", ["many", "source+", "-5", "1.5", "9" * 5000])
def test_invalid_max_length_is_a_usage_error(
    capsys: pytest.CaptureFixture[str], value: str
) -> None:
    def main(values: Any, positional: list[str]) -> None:
        print(decoding_changes(values))

    assert exit_code(main, f"--max_length={value}") == 2
    assert stderr_only(capsys).startswith(f"tfnmt: --max_length={value}: not a number or source+N")


def test_flag_without_value_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(echo, "--model") == 2
    assert "--model" in stderr_only(capsys)


def test_usage_error_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    def main(values: Any, positional: list[str]) -> None:
        raise UsageError("--model: missing; name a run", "--split: missing; name a split")

    assert exit_code(main) == 2
    assert stderr_only(capsys) == (
        "tfnmt: --model: missing; name a run\ntfnmt: --split: missing; name a split\n"
    )


def test_user_error_prints_one_line_per_problem(capsys: pytest.CaptureFixture[str]) -> None:
    def main(values: Any, positional: list[str]) -> None:
        raise UserError("a.en: no such file; get it", "a.de: no such file; get it")

    assert exit_code(main) == 1
    assert stderr_only(capsys) == (
        "tfnmt: a.en: no such file; get it\ntfnmt: a.de: no such file; get it\n"
    )


def test_other_error_keeps_its_traceback() -> None:
    def main(values: Any, positional: list[str]) -> None:
        raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError, match="a bug"):
        run_command(main, make_flags(), USAGE, [])


@pytest.mark.parametrize(
    ("number", "advice"), [(errno.ENAMETOOLONG, "check the path"), (errno.ENOSPC, "free disk")]
)
def test_failure_of_the_file_system_names_the_file(
    capsys: pytest.CaptureFixture[str], number: int, advice: str
) -> None:
    def main(values: Any, positional: list[str]) -> None:
        raise OSError(number, os.strerror(number), "my.en")

    assert exit_code(main) == 1
    assert stderr_only(capsys).startswith(f"tfnmt: my.en: {os.strerror(number)}; {advice}")


def test_exit_code_of_main_is_kept() -> None:
    def main(values: Any, positional: list[str]) -> None:
        sys.exit(143)

    assert exit_code(main) == 143


def test_interrupt_exits_with_the_code_of_the_signal(capsys: pytest.CaptureFixture[str]) -> None:
    def main(values: Any, positional: list[str]) -> None:
        raise KeyboardInterrupt

    assert exit_code(main) == 130
    assert stderr_only(capsys) == "tfnmt: interrupted\n"


WAITING = """
import signal
from absl import flags
from tfnmt.cli import run_command

def main(values, positional):
    try:
        print("waiting", flush=True)
        signal.pause()
    finally:
        print("cleaned up")

run_command(main, flags.FlagValues(), "Waits for a signal.")
"""


def start_waiting(*prefix: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [*prefix, sys.executable, "-c", WAITING],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signal_ends_a_command_with_its_clean_up(number: signal.Signals) -> None:
    process = start_waiting()
    process.send_signal(number)
    assert process.communicate() == ("cleaned up\n", "tfnmt: interrupted\n")
    assert process.returncode == 128 + number


def test_signal_that_nohup_ignores_is_ignored() -> None:
    process = start_waiting("nohup")
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    assert process.communicate()[0] == "cleaned up\n"
    assert process.returncode == 128 + signal.SIGTERM


@pytest.mark.parametrize("text", ["-5", "--model=x", "--help", "--helpshort", "- no", "--"])
def test_text_after_double_dash_may_begin_with_a_dash(
    capsys: pytest.CaptureFixture[str], text: str
) -> None:
    assert exit_code(echo, "--beam_size=2", "--", text, "-h") == 0
    assert capsys.readouterr().out == f"None 2 False {[text, '-h']}\n"


def test_negative_number_mentions_the_double_dash(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert exit_code(echo, "-5") == 2
    line = stderr_only(capsys)
    assert "5: unknown flag" in line
    assert line.endswith("comes after --\n")


def test_closed_pipe_ends_the_output_without_error(tmp_path: Path) -> None:
    script = tmp_path / "lines.py"
    script.write_text(SCRIPT)
    pipe = f'"{sys.executable}" "{script}" | head -1; exit "${{PIPESTATUS[0]}}"'
    done = subprocess.run(
        ["bash", "-c", pipe],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (141, "line 0\n", "")


def run_script(
    folder: Path, *arguments: str | bytes, stdout: int = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    script = folder / "lines.py"
    script.write_text(SCRIPT)
    return subprocess.run(
        [sys.executable, script, *arguments],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_pipe_closed_before_the_output_gives_no_traceback(
    tmp_path: Path, arguments: list[str]
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = run_script(tmp_path, *arguments, stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_full_disk_is_reported(tmp_path: Path, arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = run_script(tmp_path, *arguments, stdout=full.fileno())
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("tfnmt: stdout: No space left on device; ")


def test_output_before_a_full_disk_is_kept(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fill(values: Any, positional: list[str]) -> None:
        print("a result")
        raise OSError(errno.ENOSPC, "No space left on device")

    assert exit_code(fill) == 1
    captured = capsys.readouterr()
    assert captured.out == "a result\n"
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("tfnmt: No space left on device; ")


def test_argument_that_is_not_utf8_is_escaped(tmp_path: Path) -> None:
    done = run_script(tmp_path, b"--caf\xe9")
    assert done.returncode == 2
    assert done.stderr.startswith(r"tfnmt: --caf\udce9: unknown flag; ")


def test_list_flag_given_twice_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(echo, "--files=a,b", "--files=c,d") == 2
    assert stderr_only(capsys).startswith("tfnmt: --files: given twice; ")


@pytest.mark.parametrize(
    ("command", "arguments", "problem"),
    [
        (tfnmt.translate, ["--workers=2", "text"], "--workers: needs --executor=ray"),
        (tfnmt.translate, ["--shard_lines=9", "text"], "--shard_lines: not with texts"),
        (tfnmt.translate, ["--executor=ray", "text"], "--executor and --shard_lines: not with"),
        (tfnmt.score, ["--model=a", "--input=b", "--resume"], "--resume: needs shards"),
        (tfnmt.score, ["--model=a", "--input=b", "--address=c"], "--address: needs --executor=ray"),
        (tfnmt.prepare, ["--stall_minutes=9"], "--stall_minutes: needs --executor=ray"),
    ],
)
def test_flags_of_executors_are_checked_first(
    call: Callable[..., None], command: ModuleType, arguments: list[str], problem: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        call(command, *arguments)


def test_local_executor_does_not_import_ray() -> None:
    code = (
        "import sys; import tfnmt.translate, tfnmt.score, tfnmt.prepare; "
        "from tfnmt.cli import open_executor; from tfnmt.translate import FLAGS; "
        "FLAGS(['tfnmt', '--shard_lines=9']); open_executor(FLAGS).__enter__(); "
        "import tfnmt.data.preparation.prepared; print('ray' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True)
    assert done.stdout.strip() == b"False", done.stderr
