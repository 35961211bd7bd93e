"""`python -m app`: the command."""

import sys
from typing import NoReturn

from app.errors import UserError
from app.settings import Settings, parse


def main(arguments: list[str]) -> None:
    """Parses, loads the models, serves until a signal comes."""
    serve(parse(arguments))


def serve(settings: Settings) -> None:
    """Late, for the imports take longer than --help may."""
    from app.server.process import serve

    serve(settings)


def run() -> NoReturn:
    """Exits with a line for people where something is wrong."""
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
