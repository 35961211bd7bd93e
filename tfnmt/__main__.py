"""Train a Transformer translator on parallel text, and translate with it.

    tfnmt COMMAND [ARGUMENTS]
    tfnmt COMMAND --help
    tfnmt --version

`python -m tfnmt.COMMAND` runs the same command. `tfnmt serve` is `python -m app`. It also accepts
names of models, and serves the model that comes with tfnmt if you name none.
"""

import ast
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from absl import flags

from tfnmt import __version__
from tfnmt.cli import run_command
from tfnmt.errors import UsageError, UserError, did_you_mean
from tfnmt.loading.registry import DEFAULT_MODEL

COMMANDS = (
    *("train", "prepare", "diversify", "translate", "evaluate", "score", "average", "export"),
    *("trace", "visualize", "doctor"),
)

SERVE = "serve"
"""The command that is the web application."""

_FLAGS = flags.FlagValues()
flags.DEFINE_bool("version", False, "print the version", flag_values=_FLAGS)


def run() -> NoReturn:
    """Run the command that the first argument names."""
    arguments = sys.argv[1:] or ["--help"]
    if arguments[0] == SERVE:
        _serve(arguments[1:])
    if arguments[0] not in COMMANDS:
        run_command(_main, _FLAGS, _usage(), arguments[:1])
    command = import_module(f"tfnmt.{arguments[0]}")
    run_command(command.main, command.FLAGS, command.__doc__ or "", arguments[1:])


def _serve(arguments: list[str]) -> NoReturn:
    """Run the web application. It also accepts the names of models of tfnmt."""
    from app import errors
    from app.__main__ import main
    from app.command import run

    def find(model: str) -> Path:
        from tfnmt.loading.models import find_folder

        try:
            return find_folder(model)
        except UserError as error:
            raise errors.UserError(str(error)) from error

    run(lambda: main(arguments, find, [DEFAULT_MODEL]))


def _main(values: Any, positional: list[str]) -> None:
    """Print the version; everything else needs a command."""
    if positional:
        hint = did_you_mean(positional[0], (*COMMANDS, SERVE))
        raise UsageError(f"{positional[0]}: unknown command; {hint}--help lists the commands")
    print(f"tfnmt {__version__}")


def _usage() -> str:
    """Return the usage, with a line per command."""
    from app.settings import USAGE

    summaries = {name: _summary(name) for name in COMMANDS} | {SERVE: USAGE.partition("\n")[0]}
    rows = [f"    {name:<12}{summary}" for name, summary in summaries.items()]
    return "\n".join([(__doc__ or "").strip(), "", "Commands:", *rows])


def _summary(command: str) -> str:
    """Return the first line of a command's docstring, without importing the command."""
    source = Path(__file__).with_name(f"{command}.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]


if __name__ == "__main__":
    run()
