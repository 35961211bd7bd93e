"""The standard streams of a command: closed, full, or pipes without a reader.

A status line that cannot be written to stderr is dropped. Output that cannot be written to stdout
is an error.
"""

import errno
import io
import os
import select
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO

from tfnmt.errors import UsageError, UserError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

REPLACEMENTS = (
    (os.devnull, os.O_RDONLY),
    ("/dev/full", os.O_RDONLY),
    (os.devnull, os.O_WRONLY),
)
"""Device and mode with which a closed stdin, stdout and stderr are opened. Writing to this stdout
fails, and so does writing to /dev/stdout."""


def open_standard_streams() -> None:
    """Make stdout raise a UserError, and stderr drop its text, if they cannot be written.

    Both are UTF-8 whatever the locale. Other bytes, as in file names, are escaped. A stream that
    was replaced, for example by a test, remains unchanged.
    """
    open_missing_descriptors()
    if sys.stdout is sys.__stdout__:
        sys.stdout = _text_stream(_Output, 1, sys.__stdout__)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _text_stream(_Status, 2, sys.__stderr__)


def open_missing_descriptors() -> None:
    """Open the standard descriptors that are closed.

    Otherwise the next file would get the number of stdout or stderr, and their text with it.
    """
    for number, (device, mode) in enumerate(REPLACEMENTS):
        try:
            os.fstat(number)
        except OSError:
            _reopen(number, device, mode)


def stdin() -> TextIO:
    """Return sys.stdin; raise a UsageError if the process was started without it."""
    if sys.stdin is None:
        raise UsageError("stdin: closed; give texts or --input")
    return sys.stdin


def stdin_lines() -> Iterable[bytes]:
    """Return the lines of stdin. Iteration raises a UserError if it cannot be read."""
    # Not sys.stdin.buffer: a thread that waits there would keep Python from exiting.
    return io.BufferedReader(_Input(stdin().fileno(), closefd=False))


class _Input(io.FileIO):
    """Stdin. A failure raises an error."""

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        try:
            # The result is None while a non-blocking pipe is empty.
            while (size := super().readinto(buffer)) is None:
                select.select([self], [], [])
            return size
        except OSError as error:
            raise UserError(
                f"stdin: {_problem(error, 'reading')}; give texts or --input"
            ) from error


# The next two classes are streams of text. A raw stream would return to its buffer after a signal
# handler, which raises an error, and the buffer would write the same bytes again.


class _Output(io.TextIOWrapper):
    """Stdout. The first failure raises an error, and later output is discarded."""

    def write(self, text: str, /) -> int:
        with self._reported():
            return super().write(text)

    def flush(self) -> None:
        with self._reported():
            super().flush()

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            _reopen(self.fileno(), os.devnull, os.O_WRONLY)  # Python flushes again at exit
            if isinstance(error, BrokenPipeError):  # the reader has closed the pipe: no error
                raise
            raise UserError(
                f"stdout: {_problem(error, 'writing')}; output is lost; send it to a file or a pipe"
            ) from error


class _Status(io.TextIOWrapper):
    """Stderr. Text that cannot be written is dropped."""

    def write(self, text: str, /) -> int:
        with suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()


def _text_stream(
    kind: type[io.TextIOWrapper], number: int, original: io.TextIOWrapper | None
) -> io.TextIOWrapper:
    """Return a stream of text that is flushed when the original stream would be."""
    immediate = original is not None and (original.line_buffering or original.write_through)
    buffer = io.BufferedWriter(io.FileIO(number, "w", closefd=False))
    return kind(buffer, "utf-8", "backslashreplace", line_buffering=immediate)


def _reopen(number: int, device: str, mode: int) -> None:
    """Open a device as the descriptor of this number. Child processes inherit it."""
    opened = os.open(device, mode)
    if opened == number:
        os.set_inheritable(number, True)
    else:
        os.dup2(opened, number)
        os.close(opened)


def _problem(error: OSError, use: str) -> str:
    return f"not open for {use}" if error.errno == errno.EBADF else error.strerror or str(error)
