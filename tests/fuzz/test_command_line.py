"""Any arguments of a command give an exit code: no traceback, and no work without TensorFlow."""

import copy
import importlib
import operator
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import pytest
from absl import flags
from hypothesis import given, settings
from hypothesis import strategies as st

from app.errors import UserError as AppError
from app.settings import make_parser, parse
from tfnmt.__main__ import COMMANDS
from tfnmt.cli import run_command
from tfnmt.config import Config, flatten
from tfnmt.data.preparation.tokenizer import train_tokenizer
from tfnmt.runs.checkpoints import WEIGHTS
from tfnmt.runs.run import Run, base_folder
from tfnmt.visualize import PLOTS

WORK = ("import_tensorflow", "size_run", "read_data", "download_missing", "fetch")
"""Functions that take long. An example ends where a command calls one of them."""

NUMBERS = (
    *("0", "-1", "1", "8", "1.5", "1e400", "nan", "-inf", "\u0663", "0x1", "source+5"),
    *("source+-1", "9" * 20, "9" * 5000),
)
WORDS = (
    *("-", "--", "=", "a=b", ",", ",,", "a,b", "*", "~", "..", "../..", "%s", "{0}", "[", "{"),
    *("&a", "!!python/none", "true", "null", "auto", "en", "de", "EN", "xx", "toy", "multi30k"),
    *("train", "val", "test", "saved_model", "litert", "positions", "curves", "attention"),
    *("0,1,dog,0.5", "0,0", "http://[", "http://", "file:///etc/passwd", "", " ", "\n"),
    *("x" * 300, "\udce9", "\u2581", "\ufffd", "\U0001f600"),
)
PATHS = (
    *("run", "run/config.yaml", "run/checkpoints", "empty", "folder", "broken_link"),
    *("looping_link", "my.en", "my.en,my.de", "my.tsv", "binary", "binary.gz", "binary.tar.gz"),
    *("binary.yaml", "my.en/below", "new", "new.svg", "new.tar.gz", "/dev/null"),
    *("/", "/proc/self/mem"),
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
VALUES = st.sampled_from([*NUMBERS, *WORDS, *PATHS]) | TEXTS


FORMS = (
    "{value}",
    "--{name}={value}",
    "--{name} {value}",
    "-{name}={value}",
    "--{name}",
    "--no{name}",
)
"""Forms of an argument. A space separates two arguments."""


class WorkStarted(BaseException):
    """Ends an example whose arguments passed all checks."""


def start_work(*_: Any, **__: Any) -> NoReturn:
    raise WorkStarted


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder with the files that PATHS names. Its run has no weights that load."""
    folder = tmp_path_factory.mktemp("files") / "one" / "two"
    (folder / "folder").mkdir(parents=True)
    (folder / "empty").touch()
    (folder / "broken_link").symlink_to("nowhere")
    (folder / "looping_link").symlink_to("looping_link")
    for name in ("binary", "binary.gz", "binary.tar.gz", "binary.yaml"):
        (folder / name).write_bytes(bytes(range(256)))
    lines = [f"dog {number} runs, cat {number} sleeps" for number in range(500)]
    for language in ("en", "de"):
        (folder / f"my.{language}").write_text("\n".join(lines))
    (folder / "my.tsv").write_text("".join(f"{line}\t{line}\n" for line in lines))
    config = Config.model_validate({"tokenizer": {"vocab_size": 300}})
    run = Run(folder / "run")
    run.create(config, train_tokenizer(lines, config.tokenizer), "prepared")
    for checkpoints in (run.checkpoints(), run.best):
        checkpoints.write(1, lambda path: (path / WEIGHTS).write_bytes(b"") and None)
    return folder


@pytest.fixture
def working_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change to that folder, and replace the functions that take long."""
    monkeypatch.chdir(folder)
    for name in (*COMMANDS, "loading.models", "loading.registry", "training.batch_size"):
        module = importlib.import_module(f"tfnmt.{name}")
        for function in WORK:
            if hasattr(module, function):
                monkeypatch.setattr(module, function, start_work)


def argument_lists(values: dict[str, st.SearchStrategy[str]]) -> st.SearchStrategy[list[str]]:
    """Return lists of arguments: flags with values of their type, or anything.

    Args:
        values: The values of each flag that have its type.
    """
    typed = st.one_of(
        *(texts.map(lambda text, n=name: [f"--{n}={text}"]) for name, texts in values.items())
    )
    untyped = st.builds(
        lambda form, name, value: [part.format(name=name, value=value) for part in form.split(" ")],
        st.sampled_from(FORMS),
        st.sampled_from(list(values)),
        VALUES,
    )
    lists = st.lists(typed, max_size=4) | st.lists(typed | untyped, max_size=4)
    return lists.map(lambda parts: [text for part in parts for text in part])


STARTS: dict[str, list[list[str]]] = {
    "average": [["--model=run", "--last=1"]],
    "diversify": [["--train=my.en,my.de"], ["--dataset=toy"]],
    "doctor": [["--norun"]],
    "evaluate": [["--model=run", "--test=my.en,my.de"], ["--model=run", "--split=val"]],
    "export": [["--model=run", "--output=new"], ["--model=run", "--bundle=new.tar.gz"]],
    "prepare": [["--train=my.en,my.de"], ["--dataset=toy"]],
    "score": [["--model=run", "--input=my.tsv"]],
    "trace": [["--model=run", "a dog"], ["--tiny"]],
    "train": [["--train=my.en,my.de"], ["--dataset=toy"]],
    "translate": [["--model=run"], ["--model=run", "--input=my.en", "--output=new"]],
    "visualize": [[plot, "--model=run"] for plot in PLOTS],
}
"""Valid arguments of each command. With others after them, an example gets further."""


def flag_values(flag: flags.Flag) -> st.SearchStrategy[str]:
    """Return values of the type of a flag."""
    if flag.name == "set":
        keys = st.sampled_from([*flatten(Config()), "model", "model.x", ".", ""])
        return st.builds(lambda key, value: f"{key}={value}", keys, VALUES)
    if isinstance(flag.parser, flags.EnumParser):
        return st.sampled_from(flag.parser.enum_values)
    if isinstance(flag.parser, flags.IntegerParser | flags.FloatParser):
        return st.sampled_from(NUMBERS) | st.integers().map(str) | st.floats().map(str)
    if flag.boolean:
        return st.just("true")
    return st.sampled_from([*WORDS, *PATHS])


def command_lines(command: str) -> st.SearchStrategy[list[str]]:
    defined = importlib.import_module(f"tfnmt.{command}").FLAGS
    values = {name: flag_values(defined[name]) for name in defined}
    return st.builds(operator.add, st.sampled_from([[], *STARTS[command]]), argument_lists(values))


def exit_code(module: ModuleType, arguments: list[str]) -> object:
    """Run a command in this process, up to its work."""
    try:
        run_command(module.main, copy.deepcopy(module.FLAGS), module.__doc__ or "", arguments)
    except SystemExit as ended:
        return ended.code
    except WorkStarted:
        return 0


@pytest.mark.parametrize("command", COMMANDS)
@given(data=st.data())
def test_any_arguments_give_an_exit_code(
    command: str, data: st.DataObject, working_folder: None
) -> None:
    module = importlib.import_module(f"tfnmt.{command}")
    arguments = data.draw(command_lines(command), "arguments")
    assert exit_code(module, arguments) in (0, 1, 2)


APP_FLAGS = [
    option.removeprefix("--")
    for action in make_parser()._actions
    for option in action.option_strings
    if option.startswith("--")
]


@given(arguments=argument_lists(dict.fromkeys(APP_FLAGS, VALUES)))
def test_any_arguments_of_the_application_give_settings_or_an_error(
    arguments: list[str], working_folder: None
) -> None:
    try:
        parse(arguments)
        code: object = 0
    except AppError as error:
        code = error.exit_code
    except SystemExit as ended:  # --help
        code = ended.code
    assert code in (0, 1, 2)


@pytest.mark.parametrize("command", sorted({*COMMANDS} - {"doctor"}))  # it works without arguments
@settings(max_examples=3)
@given(data=st.data())
def test_any_arguments_give_an_exit_code_in_a_process(
    command: str, data: st.DataObject, folder: Path
) -> None:
    """Without the files of the folder, so that no work starts."""
    arguments = data.draw(command_lines(command), "arguments")
    arguments = [text for text in arguments if "toy" not in text and "tiny" not in text]
    done = subprocess.run(
        [sys.executable, "-m", f"tfnmt.{command}", *arguments],
        cwd=folder / "folder",
        env=os.environ | {"PYTHONPATH": str(base_folder())},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=300,
    )
    assert done.returncode in (0, 1, 2)
    assert b"Traceback" not in done.stderr
