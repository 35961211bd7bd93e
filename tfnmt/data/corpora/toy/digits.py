"""Two built-in tasks with a known answer, to see that a Transformer learns: copy and reverse.

Both are synthetic: a line is 3 to 12 digits, its "translation" the same digits or the same digits
backwards. The languages are called `digits` and `copied` or `reversed`.
"""

import random
from collections.abc import Callable, Iterator

SIZES = {"train": 50_000, "val": 500, "test": 500}


def copy_pairs(split: str) -> Iterator[tuple[str, str]]:
    """Lines of digits with themselves."""
    return _pairs(split, lambda digits: digits)


def reverse_pairs(split: str) -> Iterator[tuple[str, str]]:
    """Lines of digits with the same digits backwards."""
    return _pairs(split, lambda digits: digits[::-1])


def _pairs(split: str, answer: Callable[[list[str]], list[str]]) -> Iterator[tuple[str, str]]:
    """The splits share no line: the sum of a line's digits modulo 10 says where it belongs."""
    residues = {"val": (0,), "test": (1,)}.get(split, range(2, 10))
    draw = random.Random(f"tfnmt digits {split}")
    seen: set[str] = set()
    while len(seen) < SIZES[split]:
        digits = draw.choices("0123456789", k=draw.randint(3, 12))
        line = " ".join(digits)
        if sum(map(int, digits)) % 10 in residues and line not in seen:
            seen.add(line)
            yield line, " ".join(answer(digits))
