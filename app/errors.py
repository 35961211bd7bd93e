"""What a client is told when there is no answer."""


class ApiError(Exception):
    """An answer that is an error: its status, a code for programs, a message for people."""

    def __init__(
        self, status: int, code: str, message: str, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.retry_after = retry_after
        """Seconds after which it may be worth trying again."""


class UnavailableError(ApiError):
    """The model cannot be asked now."""

    def __init__(self, message: str, retry_after: float = 2) -> None:
        super().__init__(503, "unavailable", message, retry_after)


class OverloadedError(ApiError):
    """Too much is waiting already."""

    def __init__(self, retry_after: float) -> None:
        super().__init__(503, "overloaded", "too much is waiting; try again later", retry_after)


class DeadlineError(ApiError):
    """The answer would come too late."""

    def __init__(self) -> None:
        super().__init__(504, "deadline", "the translation took too long; send less text at once")


class UserError(Exception):
    """What whoever starts the application did wrong: what it is, and what to do."""

    exit_code = 1


class UsageError(UserError):
    """A wrong call."""

    exit_code = 2
