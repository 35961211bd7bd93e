"""Many lines through a translator, of which only what it answers to rows is looked at here."""

import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, count, pairwise
from queue import Queue
from threading import Barrier

import pytest

from tfnmt.data.files import decode_lines
from tfnmt.decoding.answers import Answer, Hypothesis, Row
from tfnmt.decoding.lines import (
    MAX_CHARACTERS,
    MAX_ROWS,
    WINDOW,
    Item,
    _take,
    arriving,
    batches,
    translate_lines,
    windows,
)
from tfnmt.errors import UserError
from tfnmt.lanes import LANES

PATIENCE = 20
"""Seconds after which something that should come is taken not to come."""


class Shouting:
    """Answers in capitals, and keeps the batches."""

    def __init__(self) -> None:
        self.batches: list[list[Row]] = []

    def __call__(self, rows: Sequence[Row]) -> list[Answer]:
        self.batches.append(list(rows))
        return [Answer((Hypothesis(row.text.upper(), -1.0),)) for row in rows]

    @property
    def rows(self) -> list[Row]:
        return list(chain.from_iterable(self.batches))


def random_lines(number: int, seed: int = 1) -> list[str]:
    draw = random.Random(seed)
    return [f"{row} " + "word " * draw.randrange(30) + "end" for row in range(number)]


# --- Windows ------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 1, WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW + 5])
def test_windows_are_as_long_as_there_are_lines(number: int) -> None:
    lines = random_lines(number)
    found = list(windows(lines))
    assert list(chain.from_iterable(found)) == lines
    assert all(len(window) == WINDOW for window in found[:-1])
    assert all(found)


def test_windows_wait_for_slow_lines_and_read_none_too_many() -> None:
    read = 0

    def slow() -> Iterator[str]:
        nonlocal read
        for read in count(1):
            if read % 500 == 0:
                time.sleep(0.05)
            yield str(read)

    found = windows(slow())
    assert next(found) == [str(number) for number in range(1, WINDOW + 1)]
    assert read == WINDOW


# --- Streams ------------------------------------------------------------------------------------


class Pipe:
    """A pipe that a test writes to, and the lines that come out of it, taken in a thread."""

    def __init__(self) -> None:
        self.end, writer = os.pipe()
        self.writer = os.fdopen(writer, "wb", buffering=0)
        self.pool = ThreadPoolExecutor(1)
        self.windows = arriving(self._lines())

    def _lines(self) -> Iterator[str]:
        with os.fdopen(self.end, "rb") as reader:
            yield from decode_lines(reader, "pipe")

    def write(self, content: bytes) -> None:
        self.writer.write(content)

    def take(self) -> Future[list[str] | None]:
        return self.pool.submit(next, self.windows, None)

    def close(self) -> None:
        self.writer.close()
        self.pool.shutdown()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.close()


def test_a_line_comes_although_the_stream_stalls(pipe: Pipe) -> None:
    pipe.write(b"one\n")
    assert pipe.take().result(PATIENCE) == ["one"]

    second = pipe.take()
    time.sleep(0.1)
    pipe.write(b"tw")
    time.sleep(0.1)
    assert not second.done()  # half a line is none
    pipe.write(b"o\n")
    assert second.result(PATIENCE) == ["two"]

    third = pipe.take()
    pipe.write(b"without an end")
    pipe.writer.close()
    assert third.result(PATIENCE) == ["without an end"]
    assert pipe.take().result(PATIENCE) is None


@pytest.mark.parametrize(
    ("waiting", "taken"),
    [
        (["a"], 1),
        (["a", "b", "c"], 3),
        (["a", "b", None], 3),
        (["a", ValueError("b"), "c"], 2),  # nothing comes after an end
        (["a"] * WINDOW, WINDOW),
        (["a"] * (WINDOW + 1), WINDOW),
    ],
)
def test_what_is_there_is_taken_together_up_to_a_window_or_an_end(
    waiting: list[Item], taken: int
) -> None:
    queue: Queue[Item] = Queue()
    for item in waiting:
        queue.put(item)
    assert _take(queue) == waiting[:taken]
    assert queue.qsize() == len(waiting) - taken


def test_streams_keep_their_order_in_windows_and_end() -> None:
    lines = random_lines(5 * WINDOW + 7)
    found = list(arriving(lines))
    assert list(chain.from_iterable(found)) == lines
    assert all(0 < len(window) <= WINDOW for window in found)
    assert list(arriving([])) == []


def test_what_reading_fails_with_comes_after_the_lines_before() -> None:
    def broken() -> Iterator[str]:
        yield "one"
        yield "two"
        raise UserError("the disk is gone")

    taken: list[str] = []
    lines = chain.from_iterable(arriving(broken()))
    with pytest.raises(UserError, match="the disk is gone"):
        taken.extend(lines)
    assert taken == ["one", "two"]


def test_an_endless_stream_is_read_a_window_ahead_at_most() -> None:
    read = 0

    def endless() -> Iterator[str]:
        nonlocal read
        for read in count(1):
            yield str(read)

    found = arriving(endless())
    taken = len(next(found))
    settled = -1
    while settled != read:
        settled = read
        time.sleep(0.2)
    assert read <= taken + WINDOW + 1


# --- Batches ------------------------------------------------------------------------------------


@pytest.mark.parametrize("longest", [0, 1, 100, 255, 256, 257, 3000, 20_000])
def test_batches_have_each_row_once_the_longest_first_within_bounds(longest: int) -> None:
    draw = random.Random(longest)
    lengths = [draw.randint(0, longest) for _ in range(700)]
    found = list(batches(lengths))
    in_order = list(chain.from_iterable(found))
    assert sorted(in_order) == list(range(len(lengths)))
    assert [lengths[row] for row in in_order] == sorted(lengths, reverse=True)
    for batch in found:
        assert 1 <= len(batch) <= MAX_ROWS
        assert len(batch) == 1 or len(batch) * lengths[batch[0]] <= MAX_CHARACTERS


def test_batches_are_as_large_as_they_may_be() -> None:
    assert [len(batch) for batch in batches([3] * (2 * MAX_ROWS + 1))] == [MAX_ROWS, MAX_ROWS, 1]
    half = MAX_CHARACTERS // 2
    assert [len(batch) for batch in batches([half, half, half + 1, half])] == [1, 2, 1]
    assert list(batches([10 * MAX_CHARACTERS, 1])) == [[0], [1]]
    assert list(batches([])) == []


# --- Lines --------------------------------------------------------------------------------------


def texts(answers: Iterable[Answer]) -> list[str]:
    return [answer.best.text for answer in answers]


@pytest.mark.parametrize("split_up", [windows, arriving])
def test_answers_come_in_the_order_of_the_lines(
    split_up: Callable[[Iterable[str]], Iterator[list[str]]],
) -> None:
    lines = random_lines(2 * WINDOW + 300)
    answering = Shouting()
    assert texts(translate_lines(answering, split_up(lines))) == [line.upper() for line in lines]
    assert len(answering.rows) == len(lines)


def test_rows_of_like_length_are_answered_together() -> None:
    answering = Shouting()
    list(translate_lines(answering, windows(random_lines(WINDOW))))
    in_order = sorted(answering.batches, key=lambda batch: -max(len(row.text) for row in batch))
    for batch, after in pairwise(in_order):
        assert min(len(row.text) for row in batch) >= max(len(row.text) for row in after)
    assert len(answering.batches) == WINDOW // MAX_ROWS


def test_few_rows_are_shared_out_among_the_lanes() -> None:
    answering = Shouting()
    list(translate_lines(answering, windows(random_lines(4 * LANES - 1))))
    assert sorted(len(batch) for batch in answering.batches) == [3, *[4] * (LANES - 1)]


@pytest.mark.skipif(LANES == 1, reason="one processor")
def test_batches_are_answered_side_by_side() -> None:
    both = Barrier(2)

    def meeting(rows: Sequence[Row]) -> list[Answer]:
        both.wait(PATIENCE)
        return [Answer() for _ in rows]

    assert len(list(translate_lines(meeting, [["one", "two"]]))) == 2


def test_what_a_batch_fails_with_comes_out() -> None:
    def failing(rows: Sequence[Row]) -> list[Answer]:
        raise UserError("no memory")

    with pytest.raises(UserError, match="no memory"):
        list(translate_lines(failing, windows(random_lines(WINDOW))))


def test_blank_lines_are_answered_by_nothing_and_ask_nothing() -> None:
    answering = Shouting()
    lines = ["", "one", "  ", "\t\xa0\u3000", "two", ""]
    found = list(translate_lines(answering, [lines]))
    assert texts(found) == ["", "ONE", "", "", "TWO", ""]
    assert {row.text for row in answering.rows} == {"one", "two"}
    assert found[0] == found[2] == Answer()

    answering = Shouting()
    assert texts(translate_lines(answering, [["", " "], []])) == ["", ""]
    assert answering.batches == []


def test_a_line_has_its_number_for_a_place_wherever_one_begins() -> None:
    lines = ["a", "", "ccc", "bb"]
    places = []
    for first_line in (0, 7):
        answering = Shouting()
        list(translate_lines(answering, [lines, lines], first_line=first_line))
        places.append({row.place: row.text for row in answering.rows})
    expected = {(0, 0): "a", (2, 0): "ccc", (3, 0): "bb", (4, 0): "a", (6, 0): "ccc", (7, 0): "bb"}
    assert places[0] == expected
    assert places[1] == {(line + 7, place): text for (line, place), text in expected.items()}


def test_the_parts_of_a_line_have_places_of_their_own_and_are_joined() -> None:
    def at_bars(line: str) -> list[str]:
        return line.replace("|", "| |").split("|")

    answering = Shouting()
    lines = ["one|two", "", "three|and a long four|five", "six"]
    found = texts(translate_lines(answering, [lines], at_bars, first_line=3))
    assert found == ["ONE TWO", "", "THREE AND A LONG FOUR FIVE", "SIX"]
    assert len({row.place for row in answering.rows}) == len(answering.rows) == 6
    by_text = {row.text: row.place for row in answering.rows}
    assert by_text["one"][0] == by_text["two"][0] == 3
    assert by_text["three"] < by_text["and a long four"] < by_text["five"] < by_text["six"]


def test_a_window_is_answered_before_the_next_one_is_asked_for() -> None:
    def one_window() -> Iterator[list[str]]:
        yield ["one", "two"]
        raise AssertionError("asked for more")

    answers = translate_lines(Shouting(), one_window())
    assert [next(answers).best.text, next(answers).best.text] == ["ONE", "TWO"]
