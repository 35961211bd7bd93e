"""Two synthetic tasks with a known answer, to check that a Transformer learns: copy and reverse.

A line has 3 to 12 digits. Its translation is the same digits, or the same digits in reverse order.
The languages are called `digits` and `copied` or `reversed`.
"""

import random
from collections.abc import Callable, Iterator

SIZES = {"train": 50_000, "val": 500, "test": 500}


def copy_pairs(split: str) -> Iterator[tuple[str, str]]:
    """Yield lines of digits, each with itself as translation."""
    return _pairs(split, lambda digits: digits)


def reverse_pairs(split: str) -> Iterator[tuple[str, str]]:
    """Yield lines of digits, each with the reversed line as translation."""
    return _pairs(split, lambda digits: digits[::-1])


def _pairs(split: str, answer: Callable[[list[str]], list[str]]) -> Iterator[tuple[str, str]]:
    """Generate a split. The digit sum modulo 10 selects the split, so splits share no line."""
    residues = {"val": (0,), "test": (1,)}.get(split, range(2, 10))
    generator = random.Random(f"tfnmt digits {split}")
    seen: set[str] = set()
    while len(seen) < SIZES[split]:
        digits = generator.choices("0123456789", k=generator.randint(3, 12))
        line = " ".join(digits)
        if sum(map(int, digits)) % 10 in residues and line not in seen:
            seen.add(line)
            yield line, " ".join(answer(digits))
