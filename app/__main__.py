"""Command line entry point: `python -m app`, or `tfnmt serve`."""

import sys
from typing import NoReturn

from app.errors import UserError
from app.settings import Settings, parse
from app.streams import open_standard_streams


def main(arguments: list[str]) -> None:
    """Parse the arguments, load the models and serve until a signal arrives."""
    serve(parse(arguments))


def serve(settings: Settings) -> None:
    """Import the server and run it.

    The import is inside the function because it would make `--help` slow.

    Raises:
        UserError: A package is not installed.
    """
    try:
        from app.server.process import serve
    except ModuleNotFoundError as error:
        problem = f"{error.name}: not installed; run pip install 'tfnmt[app]'"
        raise UserError(problem) from error
    serve(settings)


def run(arguments: list[str] | None = None) -> NoReturn:
    """Run the command and exit; report a user error in one line.

    Args:
        arguments: The arguments; those of the process if None.
    """
    open_standard_streams()
    try:
        main(sys.argv[1:] if arguments is None else arguments)
    except UserError as error:
        print(f"app: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(0)


if __name__ == "__main__":
    run()
