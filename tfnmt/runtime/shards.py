"""Shards: consecutive lines of a file, which any process can read, and the parts written for them.

A process finds its lines by a byte offset. Its part is written aside and renamed when it is
complete. So several attempts at one shard leave one whole part.
"""

import shutil
import time
from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tfnmt.errors import UserError
from tfnmt.runtime.files import atomic_path, make_folder, remove, remove_folder, remove_leftovers
from tfnmt.runtime.resumable_file import ResumableFile

SHARD_LINES = 65_536
"""Lines of a shard: a multiple of a window, so that windows and batches are those of a stream."""

BLOCK = 2**24
"""Bytes that are read at once to find line ends."""

REPORT_SECONDS = 1.0
"""Time between two reports of the number of written lines."""


class Shard(NamedTuple):
    """Consecutive lines of a file."""

    origin: Path  # the file, for messages
    source: Path  # the same text, not compressed
    part: Path  # the file to write
    number: int  # in its file, from 0
    offset: int  # of its first byte
    first_line: int  # from 0
    lines: int

    @property
    def name(self) -> str:
        """The name for messages."""
        last = self.first_line + self.lines
        return f"{self.origin}, shard {self.number:05d} (lines {self.first_line + 1:,}-{last:,})"

    def read(self) -> Iterator[bytes]:
        """Yield the lines with their ends.

        Raises:
            UserError: The file cannot be read.
        """
        try:
            with self.source.open("rb") as file:
                file.seek(self.offset)
                yield from islice(file, self.lines)
        except OSError as error:
            raise UserError(f"{self.origin}: {error.strerror or error}") from error


class LineIndex(NamedTuple):
    """The shards of a file: 8 bytes each."""

    offsets: np.ndarray  # of the first byte of each shard, [shards]
    lines: int  # of the file
    shard_lines: int

    def __len__(self) -> int:
        return len(self.offsets)

    def shards(self, origin: Path, source: Path, parts: "ResumableParts") -> Iterator[Shard]:
        """Yield the shards of a file.

        Args:
            origin: The file, for messages.
            source: The same text, not compressed.
            parts: The output.
        """
        for number, offset in enumerate(self.offsets.tolist()):
            first = number * self.shard_lines
            lines = min(self.shard_lines, self.lines - first)
            yield Shard(origin, source, parts.part(number), number, offset, first, lines)


def index_lines(path: Path, shard_lines: int) -> LineIndex:
    r"""Find the shards of a file in one pass. Only \n ends a line; the last one may have no end.

    Args:
        path: The file, not compressed.
        shard_lines: The lines of each shard except the last one.
    """
    found = [np.zeros(1, np.int64)]
    lines = size = 0
    last = b"\n"
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            until_next = shard_lines - lines % shard_lines
            count = block.count(b"\n")
            if count >= until_next:
                ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
                found.append(size + 1 + ends[until_next - 1 :: shard_lines])
            lines, size, last = lines + count, size + len(block), block[-1:]
    offsets = np.concatenate(found)
    return LineIndex(offsets[offsets < size], lines + (last != b"\n"), shard_lines)


def write_part(
    path: Path, attempt: int, lines: Iterable[str], expected: int | None = None
) -> Generator[int, None, int]:
    """Write lines to a file that appears when it is complete.

    Args:
        path: The file.
        attempt: The number of the attempt, for the temporary name.
        lines: The lines.
        expected: Their number, if known. A file with another number does not appear.

    Yields:
        The number of lines written since the last report, about once per second.

    Returns:
        The number of all lines.

    Raises:
        UserError: There are fewer or more lines than expected, or the file cannot be written.
    """
    with atomic_path(path, str(attempt)) as temporary:
        with temporary.open("w", encoding="utf-8", newline="\n") as file:
            written = reported = 0
            due = time.monotonic() + REPORT_SECONDS
            for line in lines:
                file.write(f"{line}\n")
                written += 1
                if time.monotonic() >= due:
                    yield written - reported
                    reported, due = written, time.monotonic() + REPORT_SECONDS
        if expected not in (None, written):
            raise UserError(
                f"{path}: {written:,} lines instead of {expected:,}, because the input changed; "
                "start over without --resume"
            )
    yield written - reported
    return written


class ResumableParts(ResumableFile):
    """An output file that is written in parts, in any order and by any processes.

    Until it is complete, the folder `.<name>.partial` contains the finished parts.
    """

    def part(self, number: int) -> Path:
        """Return the file of a part."""
        return self.partial / f"part-{number:05d}"

    def resume(self, job: dict[str, Any]) -> int:
        """Return the number of finished parts.

        Raises:
            UsageError: The existing parts, or lines, belong to a different job.
        """
        if not self._has_lines():
            return self.start(job)
        self.check_job(job)  # refuses lines that were not written in parts
        remove_leftovers(self.partial)
        return sum(1 for _ in self.partial.glob("part-*"))

    def finished_parts(self, count: int) -> np.ndarray:
        """Return which of `count` parts are finished, [parts]: a byte each."""
        finished = np.zeros(count, bool)
        numbers = [int(path.name.removeprefix("part-")) for path in self.partial.glob("part-*")]
        finished[[number for number in numbers if number < count]] = True
        return finished

    def join(self, parts: int) -> None:
        """Write the final file from its parts, and remove them."""
        with atomic_path(self.path) as temporary, temporary.open("wb") as whole:
            for number in range(parts):
                with self.part(number).open("rb") as part:
                    shutil.copyfileobj(part, whole, BLOCK)
        # Renamed first: while there is a folder of this name, the file does not count as finished.
        remove_folder(self.partial)

    def _clear(self) -> None:
        remove_leftovers(self.path.parent, self.partial.name)
        remove(self.partial)
        make_folder(self.partial)
