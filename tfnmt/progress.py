"""Progress bars on stderr: shown to people, silent where stderr is not a terminal."""

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

from tqdm import tqdm

Item = TypeVar("Item")


def say(message: str) -> None:
    """Prints a line on stderr without tearing a bar that is shown there."""
    tqdm.write(f"tfnmt: {message}", file=sys.stderr)
    sys.stderr.flush()


def bar(
    items: Iterable[Item], label: str, unit: str, total: int | None = None, scale: int = 1
) -> Iterator[Item]:
    """Yields the items under a bar that goes away when they are through.

    An item stands for `scale` units.
    """
    return iter(
        tqdm(items, desc=label, unit=f" {unit}", total=total, unit_scale=scale if scale > 1 else 0,
             leave=False, disable=None)
    )  # fmt: skip


class NotedLines:
    """Lines of which something is to be said when all are done: the first by number, and how many.

    `what` is said of each, `advice` is what to do about it.
    """

    SHOWN = 5

    def __init__(self, what: str, advice: str) -> None:
        self.what = what
        self.advice = advice
        self.first: list[int] = []
        self.count = 0

    def note(self, number: int) -> None:
        """Takes the number of a line; they rise."""
        self.count += 1
        if len(self.first) < self.SHOWN:
            self.first.append(number)

    def close(self) -> None:
        """Says it, where there were any."""
        if self.count:
            more = ", ..." if self.count > len(self.first) else ""
            numbers = ", ".join(map(str, self.first))
            say(f"line {numbers}{more}: {self.what}; {self.count:,} in all; {self.advice}")
