"""Command line entry point: `python -m app`."""

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
    """
    from app.server.process import serve

    serve(settings)


def run() -> NoReturn:
    """Run the command and exit; report a user error in one line."""
    open_standard_streams()
    try:
        main(sys.argv[1:])
    except UserError as error:
        print(f"app: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(0)


if __name__ == "__main__":
    run()
