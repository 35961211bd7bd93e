"""Command line entry point: `python -m app`, or `tfnmt serve`."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from app.command import run
from app.errors import UserError
from app.settings import parse


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


if __name__ == "__main__":
    run(lambda: main(sys.argv[1:]))
