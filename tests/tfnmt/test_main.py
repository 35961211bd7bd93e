"""The command `tfnmt`, which runs the others."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import tfnmt
from tfnmt.__main__ import COMMANDS


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tfnmt", *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )


def test_commands_are_the_modules_with_flags() -> None:
    names = [path.stem for path in Path(tfnmt.__file__).parent.glob("[a-z]*.py")]
    with_flags = [name for name in names if hasattr(import_module(f"tfnmt.{name}"), "FLAGS")]
    assert sorted(COMMANDS) == sorted(with_flags)


@pytest.mark.parametrize("arguments", [(), ("--help",)])
def test_help_lists_every_command_with_its_summary(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    for name in COMMANDS:
        summary = (import_module(f"tfnmt.{name}").__doc__ or "").partition("\n")[0]
        assert any(line.split() == [name, *summary.split()] for line in done.stdout.splitlines())
    assert "    serve       Serve a web page" in done.stdout


def test_serve_is_the_web_application() -> None:
    """With the same flags and messages."""
    done = run("serve", "--port=x")
    direct = subprocess.run(
        [sys.executable, "-m", "app", "--port=x"], capture_output=True, text=True
    )
    assert done.returncode == direct.returncode == 2
    assert done.stderr == direct.stderr
    assert done.stderr.startswith("app: ")


def test_serve_answers_an_unknown_model_with_the_nearest_one() -> None:
    done = run("serve", "--port=0", "--model=tatoeba-en")
    assert done.returncode == 1
    assert done.stderr.startswith("app: --model=tatoeba-en: no such folder or model; did you mean ")


def test_version_is_printed() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"tfnmt {tfnmt.__version__}\n")


def test_unknown_command_is_refused_with_the_nearest_one() -> None:
    done = run("trian", "--dataset=toy")
    assert done.returncode == 2
    assert done.stderr.startswith("tfnmt: trian: ")
    assert "train" in done.stderr.removeprefix("tfnmt: trian")


def test_arguments_after_the_command_are_those_of_the_command() -> None:
    direct = subprocess.run(
        [sys.executable, "-m", "tfnmt.average", "--last=0"], capture_output=True, text=True
    )
    done = run("average", "--last=0")
    assert done.returncode == direct.returncode == 2
    assert done.stderr == direct.stderr
