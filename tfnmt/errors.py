"""The user's mistakes: the only errors that end as a line instead of a traceback."""


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
