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
