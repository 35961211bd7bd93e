"""Errors that the user can fix. Commands print one line per problem, without a traceback."""

import difflib
from collections.abc import Iterable

ESCAPED = {code: repr(chr(code))[1:-1] for code in (*range(32), *range(127, 160))}
"""Control characters as they appear in a message. In a file name, they could break a line. In the
answer of a server, they could change the terminal."""


class UserError(Exception):
    """An error that the user can fix; exit code 1.

    Args:
        problems: One line each, in the form `<file or key>: <problem>; <fix>`. Control characters
            are escaped.
    """

    exit_code = 1

    def __init__(self, *problems: str) -> None:
        self.problems = tuple(problem.translate(ESCAPED) for problem in problems)
        super().__init__("\n".join(self.problems))


class UsageError(UserError):
    """Invalid flags or an invalid configuration; exit code 2."""

    exit_code = 2


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `did you mean X? ` for the known name most similar to `name`, or an empty string."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"did you mean {close[0]}? " if close else ""


def graph_error_reason(text: str) -> str:
    """Return the reason in the text of a TensorFlow error, or an empty string.

    TensorFlow writes `Graph execution error:`, the place where the node was defined, and only then
    the reason.
    """
    lines = [line for line in text.splitlines() if line[:1].strip()]
    places = [number for number, line in enumerate(lines) if line.startswith("Detected at node")]
    return "".join(lines[places[-1] + 1 :][:1]) if places else ""
