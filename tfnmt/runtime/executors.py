"""Executors: where the shards of a job are processed. This module has the local one.

A `Work` loads a model, or whatever else its tasks need, and returns a function that processes one
task. The function yields progress and returns a result. A failed task is tried again. If it fails
in all attempts, the others are still finished, and then one error names it.
"""

import errno
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, NamedTuple, Protocol, TypeVar

from tfnmt.errors import UserError
from tfnmt.progress import log

ATTEMPTS = 3
"""Attempts at a task before it has failed."""

FAILED_TASKS = 3
"""Failed tasks after which no other task is started, because the cause is probably the same."""

LASTING = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENAMETOOLONG,
}
"""Errors of a file system that another attempt does not avoid. Others, as of NFS, may pass."""


class Task(Protocol):
    """A small description of some work, such as a Shard. Text does not travel with it."""

    @property
    def name(self) -> str:
        """The name for messages."""


AnyTask = TypeVar("AnyTask", bound=Task)

Process = Callable[[Any, int], Generator[int, None, Any]]
"""(task, attempt) -> a generator that yields progress in units and returns the result."""

Report = Callable[[int], object]
"""Receives progress in units. It is negative if the units of a failed attempt are lost."""


class Work(Protocol):
    """The work on the tasks of a job. It is sent to every worker."""

    def load(self) -> Process:
        """Load everything that the tasks share."""


class Executor(Protocol):
    """Processes tasks."""

    @property
    def workers(self) -> int:
        """The number of workers."""

    def run(
        self, work: Work, tasks: Iterable[AnyTask], report: Report
    ) -> Iterator[tuple[AnyTask, Any]]:
        """Yield each task with its result, in the order in which they finish.

        Raises:
            UserError: Some tasks failed. The others are finished, except after FAILED_TASKS.
        """


# --- Attempts -------------------------------------------------------------------------------------


class Finished(NamedTuple):
    """The result of a task."""

    result: Any


class Failed(NamedTuple):
    """The problems of a failed attempt, as in a UserError."""

    problems: tuple[str, ...]
    final: bool  # whether another attempt would fail as well


Event = int | Finished | Failed
"""Progress in units, or the end of an attempt."""


def attempt_task(process: Process, task: Any, attempt: int) -> Iterator[Event]:
    """Process a task; errors become an event."""
    try:
        result = yield from process(task, attempt)
    except UserError as error:
        cause = error.__cause__
        passing = isinstance(cause, OSError) and cause.errno not in LASTING
        yield Failed(error.problems, final=not passing)
    except Exception as error:
        yield Failed((describe(error),), final=False)
    else:
        yield Finished(result)


def describe(error: Exception) -> str:
    """Return type, message and place of an unexpected error."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    message = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {message} ({frame.filename}:{frame.lineno})"


class Failures:
    """Decides whether a failed task is tried again, and collects those that are not."""

    def __init__(self) -> None:
        self._problems: list[str] = []
        self._tasks = 0

    def handle_failure(self, task: Task, attempt: int, failed: Failed) -> bool:
        """Log a failure that may pass, or else remember it; return whether to try again.

        Raises:
            UserError: Too many tasks have failed.
        """
        if not failed.final and attempt < ATTEMPTS:
            log(f"{task.name}: attempt {attempt} failed ({failed.problems[0]}); trying again")
            return True
        if failed.final:
            self._problems += failed.problems
        else:
            self._problems.append(
                f"{task.name}: failed {attempt} times, at last because of {failed.problems[0]}; "
                "remove the cause and run the command again"
            )
        self._tasks += 1
        if self._tasks == FAILED_TASKS:
            self.check()
        return False

    def check(self) -> None:
        """Raise a UserError if any task failed."""
        if self._problems:
            raise UserError(*self._problems)


# --- The local executor ---------------------------------------------------------------------------


class LocalExecutor:
    """Processes tasks one after another in this process."""

    workers: int = 1

    def run(
        self, work: Work, tasks: Iterable[AnyTask], report: Report
    ) -> Iterator[tuple[AnyTask, Any]]:
        """Yield each task with its result, in order."""
        process = work.load()
        failures = Failures()
        for task in tasks:
            for attempt in range(1, ATTEMPTS + 1):
                end = _run_attempt(attempt_task(process, task, attempt), report)
                if isinstance(end, Finished):
                    yield task, end.result
                    break
                if not failures.handle_failure(task, attempt, end):
                    break
        failures.check()


def _run_attempt(events: Iterable[Event], report: Report) -> Finished | Failed:
    """Report the progress of an attempt and return its end."""
    units = 0
    for event in events:
        if isinstance(event, Finished):
            return event
        if isinstance(event, Failed):
            report(-units)
            return event
        units += event
        report(event)
    raise AssertionError("an attempt ends with an event")
