"""Exceptions: errors of the API, and errors of the person who starts the application."""


class ApiError(Exception):
    """An error response: an HTTP status, a code for programs and a message for people."""

    def __init__(
        self, status: int, code: str, message: str, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.retry_after = retry_after
        """Seconds after which the client may retry; None if a retry does not help."""


class UnavailableError(ApiError):
    """The model cannot answer now."""

    def __init__(self, message: str, retry_after: float = 2) -> None:
        super().__init__(503, "unavailable", message, retry_after)


class OverloadedError(ApiError):
    """The queue is too long."""

    def __init__(self, retry_after: float) -> None:
        super().__init__(503, "overloaded", "the queue is full; try again later", retry_after)


class DeadlineError(ApiError):
    """The request exceeded its deadline."""

    def __init__(self) -> None:
        super().__init__(
            504, "deadline", "the translation took too long; send less text per request"
        )


class UserError(Exception):
    """An error of the person who starts the application: the problem and how to fix it."""

    exit_code = 1


class UsageError(UserError):
    """Invalid command line arguments."""

    exit_code = 2
