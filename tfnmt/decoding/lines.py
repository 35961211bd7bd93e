"""Many lines through a translator: in batches of like length, answers in the order of the lines."""

import math
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count, islice
from queue import Empty, Queue
from threading import Thread

from tfnmt.decoding.answers import Answer, Answering, Row
from tfnmt.decoding.sentences import Split, join, whole
from tfnmt.lanes import LANES

WINDOW = 1024
"""Lines that are sorted by length together; memory is bounded by it."""

Item = str | Exception | None
"""A line of a stream, what reading it ended with, or its end."""

MAX_ROWS = 64
MAX_CHARACTERS = 16_384
"""A batch's limits: rows, and rows x the characters of the longest."""


def windows(lines: Iterable[str]) -> Iterator[list[str]]:
    """The lines of a text, so many at a time: the same ones whatever the machine does."""
    lines = iter(lines)
    while window := list(islice(lines, WINDOW)):
        yield window


def arriving(lines: Iterable[str]) -> Iterator[list[str]]:
    """The lines of a stream as they come: what is there is not kept waiting for what is not."""
    queue: Queue[Item] = Queue(WINDOW)
    Thread(target=_fill, args=(queue, lines), daemon=True).start()
    while True:
        items = _take(queue)
        window = [item for item in items if isinstance(item, str)]
        if window:
            yield window
        end = items[-1]
        if isinstance(end, Exception):
            raise end
        if end is None:
            return


def _fill(queue: Queue[Item], lines: Iterable[str]) -> None:
    try:
        for line in lines:
            queue.put(line)
        queue.put(None)
    except Exception as error:  # which whoever takes the lines must hear of
        queue.put(error)


def _take(queue: Queue[Item]) -> list[Item]:
    """What is there: one item at least, a window at most, and the end last."""
    items = [queue.get()]
    while len(items) < WINDOW and isinstance(items[-1], str):
        try:
            items.append(queue.get_nowait())
        except Empty:
            break
    return items


def translate_lines(
    answering: Answering,
    text: Iterable[list[str]],
    split: Split = whole,
    first_line: int = 0,
) -> Iterator[Answer]:
    """The answer to each line of some windows, in order.

    A line of white space alone is answered by nothing. `first_line` is the number of the first one,
    which decides what is drawn for it.
    """
    with _lanes() as lanes:
        for window in text:
            yield from _translate_window(lanes, answering, window, split, first_line)
            first_line += len(window)


@contextmanager
def _lanes() -> Iterator[Executor]:
    """What translates batches side by side; what has not begun when it is left is never done."""
    lanes = ThreadPoolExecutor(LANES, "lane")
    try:
        yield lanes
    finally:
        lanes.shutdown(cancel_futures=True)


def _translate_window(
    lanes: Executor, answering: Answering, lines: list[str], split: Split, first_line: int
) -> Iterator[Answer]:
    parts = [split(line) for line in lines]
    rows = [
        Row((number, place), part)
        for number, line in zip(count(first_line), parts, strict=False)
        for place, part in enumerate(line)
        if part.strip()
    ]
    fair = math.ceil(len(rows) / LANES)
    numbers = list(batches([len(row.text) for row in rows], max_rows=min(fair, MAX_ROWS)))
    together = lanes.map(answering, [[rows[number] for number in batch] for batch in numbers])
    answers: dict[int, Answer] = {}
    for batch, found in zip(numbers, together, strict=True):
        answers |= zip(batch, found, strict=True)
    in_order = (answers[number] for number in range(len(rows)))
    for line in parts:
        yield join(line, in_order)


def batches(
    lengths: Sequence[int], max_characters: int = MAX_CHARACTERS, max_rows: int = MAX_ROWS
) -> Iterator[list[int]]:
    """Rows of so many characters by their numbers, the longest first: what needs most memory."""
    by_length = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    start = 0
    while start < len(by_length):
        size = max(1, min(max_rows, max_characters // max(1, lengths[by_length[start]])))
        yield by_length[start : start + size]
        start += size
