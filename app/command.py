"""Running a command: its arguments, its errors and its exit code."""

import argparse
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from app.errors import UsageError, UserError
from app.streams import open_standard_streams


class Parser(argparse.ArgumentParser):
    """A parser whose errors are exceptions."""

    def parse(self, arguments: list[str]) -> argparse.Namespace:
        """Parse arguments; raise a UsageError if one is invalid."""
        for argument in arguments:
            name, _, value = argument.partition("=")
            if value == "--":  # before Python 3.13, argparse drops this value
                self.error(f"argument {name}: expected one argument")
        return self.parse_args(arguments)

    def error(self, message: str) -> None:  # type: ignore[override]
        """Raise a UsageError."""
        raise UsageError(f"{message}; see --help")


def run(command: Callable[[], None]) -> NoReturn:
    """Run a command and exit; report a user error in one line."""
    open_standard_streams()
    signal.signal(signal.SIGTERM, _end)
    try:
        command()
    except UserError as error:
        print(f"app: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(0)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    """End as without a handler. The first process of a container ignores signals without one."""
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)  # without effect in the first process
    sys.exit(128 + number)
