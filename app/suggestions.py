"""Corrections of translations in a SQLite database, and the command that exports them."""

import os
import re
import signal
import sqlite3
import sys
import time
from argparse import RawDescriptionHelpFormatter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from app.command import Parser, run
from app.errors import ApiError, UnavailableError, UserError

USAGE = """\
Print the corrections of a database as a TSV file for tfnmt train.

    python -m app.suggestions export --database=FILE [--source=en --target=de]

The first line names the two languages. Tabs and line breaks in a text become spaces.
Exit codes: 0 success, 1 failure, 2 invalid arguments."""

MAX_SUGGESTIONS = 100_000
"""Maximum corrections in a database. It bounds the size of the file."""

DAY = 24 * 3600

OWNER_ONLY = 0o600

# SQLite counts the rows in the index, which is smaller than the texts.
SCHEMA = """
CREATE TABLE IF NOT EXISTS suggestion (
    id INTEGER PRIMARY KEY,
    time INTEGER NOT NULL,
    source TEXT NOT NULL,
    target TEXT NOT NULL,
    text TEXT NOT NULL,
    translation TEXT NOT NULL,
    correction TEXT NOT NULL,
    model TEXT NOT NULL,
    version TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS suggestion_time ON suggestion (time);
"""

INSERT = """
INSERT INTO suggestion (time, source, target, text, translation, correction, model, version)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""

SELECTED = "(:source IS NULL OR source = :source) AND (:target IS NULL OR target = :target)"
SELECT_DIRECTIONS = f"SELECT DISTINCT source, target FROM suggestion WHERE {SELECTED}"
SELECT_PAIRS = f"""
SELECT text, correction FROM suggestion WHERE {SELECTED}
GROUP BY text, correction ORDER BY MIN(id)
"""

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
"""Tabs, line breaks and other characters that do not belong into a cell."""


def clean(text: str) -> str:
    """Return a text as it is exported, which may be empty."""
    return CONTROL.sub(" ", text).strip()


class Suggestion(NamedTuple):
    """A correction of a translation."""

    source: str
    target: str
    text: str
    translation: str
    """The translation that the user has seen; empty if it is unknown."""
    correction: str
    model: str
    version: str


class SuggestionStore:
    """A database of corrections, which are deleted after a time.

    Each call opens the database, so that calls may come from any thread, and the last one to close
    it moves all changes from the write-ahead log to the file.
    """

    def __init__(self, path: Path, days: int, clock: Callable[[], float] = time.time) -> None:
        """Open or create a database that only its owner can read.

        Args:
            path: The file.
            days: Days after which a correction is deleted.
            clock: Returns the seconds since 1970.

        Raises:
            UserError: The file cannot be used.
        """
        self._path = path
        self._days = days
        self._clock = clock
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY))
            with self._open() as database:
                database.execute("PRAGMA journal_mode = WAL")
                database.executescript(SCHEMA)
            path.chmod(OWNER_ONLY)
        except (OSError, sqlite3.Error) as error:
            problem = f"--suggestions={path}: {_reason(error)}; name another file"
            raise UserError(problem) from error

    def add(self, suggestion: Suggestion) -> None:
        """Keep a correction.

        Raises:
            ApiError: The database is full or cannot be written.
        """
        try:
            self.delete_expired()
            with self._open() as database:
                (count,) = database.execute("SELECT COUNT(*) FROM suggestion").fetchone()
                if count >= MAX_SUGGESTIONS:
                    raise ApiError(507, "full", "the server keeps no more suggestions")
                database.execute(INSERT, (round(self._clock()), *suggestion))
        except sqlite3.Error as error:
            raise UnavailableError("the suggestion cannot be kept now") from error

    def delete_expired(self) -> None:
        """Delete the corrections whose time is over, and overwrite their texts."""
        with self._open() as database:
            database.execute("PRAGMA secure_delete = ON")
            oldest = self._clock() - DAY * self._days
            database.execute("DELETE FROM suggestion WHERE time < ?", (oldest,))

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Yield the database, and commit if no error occurred."""
        with closing(_connect(self._path)) as database, database:
            yield database


def export(path: Path, source: str | None, target: str | None) -> Iterator[str]:
    """Yield the lines of a TSV file: the two languages, then texts and their corrections.

    Args:
        path: A database.
        source: Source language, or None for the only one.
        target: Target language, or None for the only one.

    Raises:
        UserError: The database cannot be read, or has no such correction or several directions.
    """
    selected = {"source": source, "target": target}
    try:
        # A read-only connection would leave its auxiliary files behind.
        with closing(_connect(path)) as database:
            database.execute("PRAGMA query_only = ON")
            directions = database.execute(SELECT_DIRECTIONS, selected).fetchall()
            yield _line(_only(directions, path))
            yield from map(_line, database.execute(SELECT_PAIRS, selected))
    except sqlite3.Error as error:
        problem = f"--database={path}: {_reason(error)}; name the file of --suggestions"
        raise UserError(problem) from error


def _connect(path: Path) -> sqlite3.Connection:
    """Open an existing file. In a URI, a name such as :memory: has no special meaning."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)


def _only(directions: Sequence[tuple[str, str]], path: Path) -> tuple[str, str]:
    if not directions:
        raise UserError(
            f"--database={path}: contains no such correction; check --source and --target"
        )
    if len(directions) > 1:
        found = ", ".join(sorted(f"{source} to {target}" for source, target in directions))
        raise UserError(f"--database={path}: contains {found}; add --source and --target")
    return directions[0]


def _line(cells: Sequence[str]) -> str:
    return "\t".join(map(clean, cells)) + "\n"


def _reason(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)


def make_parser() -> Parser:
    """Create the parser of the command line."""
    parser = Parser(
        prog="python -m app.suggestions",
        description=USAGE,
        allow_abbrev=False,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=["export"])
    parser.add_argument(
        "--database", type=Path, required=True, metavar="FILE", help="file of --suggestions"
    )
    parser.add_argument("--source", metavar="CODE", help="source language; by default the only one")
    parser.add_argument("--target", metavar="CODE", help="target language; by default the only one")
    return parser


def main(arguments: list[str]) -> None:
    """Write the corrections to stdout.

    Raises:
        UserError: A flag is invalid, or the database or stdout has an error.
    """
    flags = make_parser().parse(arguments)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader such as head may stop early
    # Unlike sys.stdout, its buffer reports errors.
    output = sys.stdout.buffer
    lines = export(flags.database, flags.source, flags.target)
    try:
        output.writelines(line.encode() for line in lines)
        output.flush()
    except OSError as error:
        raise UserError(f"stdout: {_reason(error)}; check the disk") from error


if __name__ == "__main__":
    run(lambda: main(sys.argv[1:]))
