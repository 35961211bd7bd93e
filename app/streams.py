"""The standard streams of the application, which has only status lines to write.

It repeats a part of tfnmt/runtime/streams.py, because the application does not import that package.
"""

import io
import os
import sys
from contextlib import suppress


class _Status(io.TextIOWrapper):
    """A stream that drops text that cannot be written."""

    def write(self, text: str, /) -> int:
        with suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()

    def close(self) -> None:
        """Close the stream. Text that cannot be written is dropped."""
        with suppress(OSError):
            super().close()


def open_standard_streams() -> None:
    """Open closed standard streams on the null device, and ignore failures of stdout and stderr.

    Otherwise the next socket would get the number of a closed stream, and its text with it.
    """
    while (null := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(null)
    sys.stdout, sys.stderr = (
        _Status(
            io.BufferedWriter(io.FileIO(number, "w", closefd=False)),
            "utf-8",
            "backslashreplace",
            line_buffering=True,
        )
        for number in (1, 2)
    )
