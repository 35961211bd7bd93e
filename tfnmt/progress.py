"""Log lines and progress bars on stderr. Bars appear only if stderr is a terminal."""

import sys
from collections.abc import Iterable, Iterator
from typing import Self, TypeVar

from tqdm import tqdm

from tfnmt.errors import ESCAPED

Item = TypeVar("Item")


def log(message: str) -> None:
    """Print `tfnmt: MESSAGE` on stderr, above any progress bar. Control characters are escaped."""
    if sys.stderr is None:  # in a daemon that uses tfnmt as a library; tqdm would print on stdout
        return
    tqdm.write(f"tfnmt: {message.translate(ESCAPED)}", file=sys.stderr)
    sys.stderr.flush()


def progress_bar(
    items: Iterable[Item], label: str, unit: str, total: int | None = None, scale: int = 1
) -> Iterator[Item]:
    """Yield the items while a progress bar is shown, which disappears at the end.

    Args:
        items: The items.
        label: The text in front of the bar.
        unit: The name of the unit, for the rate.
        total: The number of items, if known.
        scale: Units per item.
    """
    bar = tqdm(
        items,
        desc=label,
        unit=f" {unit}",
        total=total,
        unit_scale=scale if scale > 1 else 0,
        leave=False,
        disable=None,  # unless stderr is a terminal
    )
    return iter(bar)


class ProgressMeter:
    """A progress bar that is moved by its owner. Use it as a context manager.

    Args:
        label: The text in front of the bar.
        unit: The name of the unit, for the rate.
        total: The number of units, if known.
    """

    def __init__(self, label: str, unit: str, total: int | None = None) -> None:
        self._bar = tqdm(desc=label, unit=f" {unit}", total=total, leave=False, disable=None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.close()

    def add(self, units: int) -> None:
        """Add finished units. They are negative if units of a failed attempt are lost."""
        self._bar.update(units)

    def show(self, done: int, total: int) -> None:
        """Set the position and the end."""
        self._bar.total = total
        self._bar.update(done - self._bar.n)


class LineNotes:
    """Line numbers with the same problem, about which a single line is logged.

    Args:
        problem: The problem of each line.
        advice: The fix.
    """

    SHOWN = 5

    def __init__(self, problem: str, advice: str) -> None:
        self.problem = problem
        self.advice = advice
        self.first: list[int] = []
        self.last = 0
        self.count = 0

    def add(self, number: int) -> None:
        """Add a line by its number. Numbers must not decrease; a repeated one counts once."""
        if number == self.last:
            return
        self.last = number
        self.count += 1
        if len(self.first) < self.SHOWN:
            self.first.append(number)

    def merge(self, other: "LineNotes") -> None:
        """Add the notes about other lines of the same file, in any order."""
        self.first = sorted(self.first + other.first)[: self.SHOWN]
        self.last = max(self.last, other.last)
        self.count += other.count

    def close(self, place: str = "") -> None:
        """Log the first line numbers and the count, if any lines were added.

        Args:
            place: The text in front, such as the name of the file.
        """
        if self.count:
            more = ", ..." if self.count > len(self.first) else ""
            numbers = f"{place}line {', '.join(map(str, self.first))}{more}"
            log(f"{numbers}: {self.problem}; {self.count:,} in total; {self.advice}")


class ReplacementNotes(LineNotes):
    """Numbers of lines with U+FFFD, the replacement for bytes that are not UTF-8."""

    def __init__(self) -> None:
        super().__init__(
            "contains U+FFFD, the replacement for bytes that are not UTF-8",
            "convert the text to UTF-8, for example with iconv",
        )

    def check(self, lines: Iterable[str], first: int = 1) -> Iterator[str]:
        """Yield the lines and note those with replacement characters.

        Args:
            lines: The lines.
            first: The number of the first line.
        """
        for number, line in enumerate(lines, start=first):
            if "\ufffd" in line:
                self.add(number)
            yield line
