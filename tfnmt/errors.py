"""The user's mistakes: the only errors that end as a line instead of a traceback."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Something that the user can mend: a list of problems, one line each.

    A problem reads `<file or key>: <what is wrong>; <what to do>`.
    """

    exit_code = 1

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class UsageError(UserError):
    """A command or configuration that asks for what cannot be: exit code 2."""

    exit_code = 2


def nearest(name: str, known: Iterable[str]) -> str:
    """`did you mean X? ` where a known name is close, else nothing."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"did you mean {close[0]}? " if close else ""
