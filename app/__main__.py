"""Command line entry point: `python -m app`, or `tfnmt serve`."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from app.errors import UserError
from app.settings import parse
from app.streams import open_standard_streams


def main(
    arguments: list[str],
    find_folder: Callable[[str], Path] = Path,
    default_models: Sequence[str] = (),
) -> None:
    """Parse the arguments as `app.settings.parse` does, and serve until a signal arrives.

    The server is imported after parsing, because its import would make `--help` slow.

    Raises:
        UserError: A flag is invalid, or a package is not installed.
    """
    try:
        settings = parse(arguments, find_folder, default_models)
        from app.server.process import serve
    except ModuleNotFoundError as error:
        problem = f"{error.name}: not installed; run pip install 'tfnmt[app]'"
        raise UserError(problem) from error
    serve(settings)


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


if __name__ == "__main__":
    run(lambda: main(sys.argv[1:]))
