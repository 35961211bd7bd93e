"""Every command on the pages is valid."""

import copy
import re
from importlib import import_module

import pytest

from docs.generate import APPLICATION
from tests.docs.pages import PAGES, ROOT, Command, commands
from tfnmt.config import preset_names
from tfnmt.experiment import resolve_config

COMMANDS = [command for page in PAGES for command in commands(page)]
PLACEHOLDERS = {"--dataset=NAME", "--config=FILE"}


def test_pages_have_commands_of_all_kinds() -> None:
    """Without commands, the tests below could not fail."""
    assert len(COMMANDS) > 80
    modules = {command.module for command in COMMANDS}
    assert {
        "tfnmt.train",
        "tfnmt.export",
        "app",
        "app.suggestions",
        "benchmarks.serving",
    } <= modules


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_flags_of_commands_exist(command: Command) -> None:
    if command.module in APPLICATION:
        APPLICATION[command.module].make_parser().parse_args(command.arguments)
        return
    values = copy.deepcopy(import_module(command.module).FLAGS)
    values([command.module, *command.arguments])


EXPERIMENTS = [
    command
    for command in COMMANDS
    if command.module in ("tfnmt.train", "tfnmt.prepare", "tfnmt.diversify")
    and command.arguments
    and not PLACEHOLDERS.intersection(command.arguments)
    and "--list" not in command.arguments
]


@pytest.mark.parametrize("command", EXPERIMENTS, ids=str)
def test_presets_and_keys_of_commands_exist(
    command: Command, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("experiment")
    monkeypatch.chdir(folder)
    for argument in command.arguments:  # files that the pages ask the reader to create
        if argument.startswith("--config="):
            path = folder / argument.removeprefix("--config=")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("{}")
    values = copy.deepcopy(import_module(command.module).FLAGS)
    values([command.module, *command.arguments])
    resolve_config(values)


def test_named_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.M))
    named = {
        name
        for page in PAGES
        for name in re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(), re.M)
    }
    assert {"demo", "install", "test"} <= named <= targets


def test_named_presets_exist() -> None:
    named = {
        preset
        for page in PAGES
        for preset in re.findall(r"--dataset=([a-z0-9-]+)", page.read_text())
    }
    assert named <= set(preset_names())
