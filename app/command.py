"""Running a command: its arguments, its errors and its exit code."""

import argparse
import sys
from collections.abc import Callable
from typing import NoReturn

from app.errors import UsageError, UserError
from app.streams import open_standard_streams


class Parser(argparse.ArgumentParser):
    """A parser whose errors are exceptions."""

    def error(self, message: str) -> None:  # type: ignore[override]
        """Raise a UsageError."""
        raise UsageError(f"{message}; see --help")


def run(command: Callable[[], None]) -> NoReturn:
    """Run a command and exit; report a user error in one line."""
    open_standard_streams()
    try:
        command()
    except UserError as error:
        print(f"app: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(0)
