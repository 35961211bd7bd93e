"""Every command on the pages is one that the code understands."""

import copy
import re
from importlib import import_module

import pytest

import app.settings
from tests.docs.pages import PAGES, ROOT, Command, commands
from tfnmt.cli import resolve
from tfnmt.config import preset_names

COMMANDS = [command for page in PAGES for command in commands(page)]
PLACEHOLDERS = {"--dataset=NAME", "--config=FILE"}


def test_the_pages_have_commands_of_all_kinds() -> None:
    """Else nothing below would fail where none is found."""
    assert len(COMMANDS) > 80
    modules = {command.module for command in COMMANDS}
    assert {"tfnmt.train", "tfnmt.export", "app", "benchmarks.serving"} <= modules


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_the_flags_of_a_command_are_its_own(command: Command) -> None:
    if command.module == "app":
        app.settings.make_parser().parse_args(command.arguments)
        return
    values = copy.deepcopy(import_module(command.module).FLAGS)
    values([command.module, *command.arguments])


EXPERIMENTS = [
    command
    for command in COMMANDS
    if command.module in ("tfnmt.train", "tfnmt.prepare") and command.arguments
    and not PLACEHOLDERS.intersection(command.arguments) and "--list" not in command.arguments
]  # fmt: skip


@pytest.mark.parametrize("command", EXPERIMENTS, ids=str)
def test_presets_and_keys_of_a_command_are_there(
    command: Command, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("experiment")
    monkeypatch.chdir(folder)
    for argument in command.arguments:  # files of which the pages tell the reader to have them
        if argument.startswith("--config="):
            path = folder / argument.removeprefix("--config=")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("{}")
    values = copy.deepcopy(import_module(command.module).FLAGS)
    values([command.module, *command.arguments])
    resolve(values)


def test_the_make_targets_that_are_named_are_there() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.M))
    named = {
        name
        for page in PAGES
        for name in re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(), re.M)
    }
    assert {"demo", "install", "test"} <= named <= targets


def test_presets_that_are_named_are_there() -> None:
    named = {
        preset
        for page in PAGES
        for preset in re.findall(r"--dataset=([a-z0-9-]+)", page.read_text())
    }
    assert named <= set(preset_names())
