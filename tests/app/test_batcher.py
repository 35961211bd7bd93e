import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from app.errors import OverloadedError, UnavailableError
from app.models.batcher import MAX_PIECES, MAX_ROWS, Batcher, Task


class Worker:
    """Works on batches when it is let; remembers them."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.free = asyncio.Event()
        self.task = Task("work", self.run)

    async def run(self, rows: Sequence[Any]) -> list[Any]:
        self.batches.append(list(rows))
        await self.free.wait()
        if "down" in rows:
            raise UnavailableError("away")
        if "bad" in rows:
            raise ValueError("a row is bad")
        return [f"{row}!" for row in rows]


def sized(*rows: Any, pieces: int = 10) -> list[tuple[Any, int]]:
    return [(row, pieces) for row in rows]


def run(scenario: Callable[[Worker], Awaitable[None]]) -> None:
    async def begin() -> None:
        await asyncio.wait_for(scenario(Worker()), 60)

    asyncio.run(begin())


async def start(*questions: Any) -> list[asyncio.Task[Any]]:
    """Asks, and lets every question get into the queue."""
    tasks = [asyncio.ensure_future(question) for question in questions]
    for _ in range(5):
        await asyncio.sleep(0)
    return tasks


def test_an_idle_lane_takes_what_is_there_at_once() -> None:
    async def scenario(worker: Worker) -> None:
        worker.free.set()
        batcher = Batcher(1, 10)
        assert await batcher.ask(worker.task, sized("a")) == ["a!"]
        assert await batcher.ask(worker.task, sized("a", "b")) == ["a!", "b!"]
        assert worker.batches == [["a"], ["a", "b"]]

    run(scenario)


def test_what_comes_while_all_lanes_are_busy_becomes_one_batch() -> None:
    async def scenario(worker: Worker) -> None:
        batcher = Batcher(1, 10)
        asked = await start(*(batcher.ask(worker.task, sized(name)) for name in "abcd"))
        worker.free.set()
        assert await asyncio.gather(*asked) == [["a!"], ["b!"], ["c!"], ["d!"]]
        assert worker.batches == [["a"], ["b", "c", "d"]]

    run(scenario)


def test_lanes_that_are_free_together_share_what_is_there() -> None:
    async def scenario(worker: Worker) -> None:
        batcher = Batcher(2, 10)
        worker.free.set()
        assert await batcher.ask(worker.task, sized(*"abcde")) == [f"{name}!" for name in "abcde"]
        assert worker.batches == [["a", "b", "c"], ["d", "e"]]

    run(scenario)


def test_a_lane_that_comes_alone_leaves_the_other_its_part() -> None:
    async def scenario(worker: Worker) -> None:
        batcher = Batcher(2, 10)
        asked = await start(*(batcher.ask(worker.task, sized(name)) for name in "ab"))
        asked += await start(batcher.ask(worker.task, sized(*"cdef")))
        worker.free.set()
        await asyncio.gather(*asked)
        assert worker.batches[:3] == [["a"], ["b"], ["c", "d"]]

    run(scenario)


def test_lanes_work_side_by_side() -> None:
    async def scenario(worker: Worker) -> None:
        batcher = Batcher(2, 10)
        asked = await start(*(batcher.ask(worker.task, sized(name)) for name in "abc"))
        assert worker.batches == [["a"], ["b"]]
        worker.free.set()
        await asyncio.gather(*asked)

    run(scenario)


def test_longer_rows_wait_for_a_batch_of_their_own() -> None:
    async def scenario(worker: Worker) -> None:
        batcher = Batcher(1, 10)
        rows = [("first", 9), ("short", 9), ("long", 90), ("short too", 12), ("longer", 120)]
        asked = await start(*(batcher.ask(worker.task, [row]) for row in rows))
        worker.free.set()
        await asyncio.gather(*asked)
        assert worker.batches == [["first"], ["short", "short too"], ["long", "longer"]]

    run(scenario)


def test_of_many_those_most_like_the_first_in_length_go_together() -> None:
    async def scenario(worker: Worker) -> None:
        batcher = Batcher(1, 1e9)
        rows = [("first", 9), ("head", 20), *((str(number), 30) for number in range(40))]
        rows += [("near", 21), ("nearer", 20)]
        asked = await start(*(batcher.ask(worker.task, [row]) for row in rows))
        worker.free.set()
        await asyncio.gather(*asked)
        assert worker.batches[1][:3] == ["head", "nearer", "near"]
        assert len(worker.batches[1]) == MAX_ROWS

    run(scenario)


def test_tasks_do_not_mix() -> None:
    async def scenario(worker: Worker) -> None:
        batcher = Batcher(1, 10)
        other = Task("other", worker.run)
        tasks = [worker.task, worker.task, other, worker.task]
        asked = await start(
            *(batcher.ask(task, sized(str(number))) for number, task in enumerate(tasks))
        )
        worker.free.set()
        await asyncio.gather(*asked)
        assert worker.batches == [["0"], ["1", "3"], ["2"]]

    run(scenario)


@pytest.mark.parametrize("pieces", [1, 200, 5000])
def test_a_batch_has_bounds(pieces: int) -> None:
    async def scenario(worker: Worker) -> None:
        worker.free.set()
        rows = [str(number) for number in range(3 * MAX_ROWS)]
        batcher = Batcher(1, 1e9)
        assert await batcher.ask(worker.task, sized(*rows, pieces=pieces)) == [
            f"{row}!" for row in rows
        ]
        most = max(map(len, worker.batches))
        assert most <= MAX_ROWS
        assert most == 1 or most * pieces <= MAX_PIECES

    run(scenario)


def test_a_task_may_bound_its_batches() -> None:
    async def scenario(worker: Worker) -> None:
        worker.free.set()
        task = Task("large", worker.run, most_rows=1)
        assert await Batcher(1, 10).ask(task, sized("a", "b")) == ["a!", "b!"]
        assert worker.batches == [["a"], ["b"]]

    run(scenario)


def test_a_bad_row_harms_no_neighbour() -> None:
    async def scenario(worker: Worker) -> None:
        batcher = Batcher(1, 10)
        asked = await start(
            *(batcher.ask(worker.task, sized(row)) for row in ("first", "a", "bad", "b"))
        )
        worker.free.set()
        first, a, bad, b = await asyncio.gather(*asked, return_exceptions=True)
        assert (first, a, b) == (["first!"], ["a!"], ["b!"])
        assert isinstance(bad, ValueError)
        assert worker.batches == [["first"], ["a", "bad", "b"], ["a"], ["bad"], ["b"]]
        assert await batcher.ask(worker.task, sized("c")) == ["c!"]

    run(scenario)


def test_a_model_that_is_away_is_not_asked_row_by_row() -> None:
    async def scenario(worker: Worker) -> None:
        worker.free.set()
        batcher = Batcher(1, 10)
        with pytest.raises(UnavailableError):
            await batcher.ask(worker.task, sized("a", "down"))
        assert worker.batches == [["a", "down"]]
        assert await batcher.ask(worker.task, sized("b")) == ["b!"]

    run(scenario)


def test_rows_that_nobody_waits_for_any_more_are_dropped() -> None:
    async def scenario(worker: Worker) -> None:
        batcher = Batcher(1, 10)
        first, gone, there = await start(
            *(batcher.ask(worker.task, sized(row)) for row in ("first", "gone", "there"))
        )
        gone.cancel()
        await asyncio.sleep(0)
        worker.free.set()
        assert await asyncio.gather(first, there) == [["first!"], ["there!"]]
        assert worker.batches == [["first"], ["there"]]

    run(scenario)


def test_rows_that_nobody_waits_for_any_more_keep_nobody_out() -> None:
    async def scenario(worker: Worker) -> None:
        batcher = Batcher(1, patience=1)
        worker.task.seconds_a_piece = 0.1
        first, *gone = await start(
            *(batcher.ask(worker.task, sized(row)) for row in ("first", "a", "b"))
        )
        for question in gone:
            question.cancel()
        await asyncio.gather(*gone, return_exceptions=True)
        assert batcher.backlog == 0
        (another,) = await start(batcher.ask(worker.task, sized("c")))
        worker.free.set()
        assert await asyncio.gather(first, another) == [["first!"], ["c!"]]

    run(scenario)


def test_what_would_wait_too_long_is_refused_until_the_queue_is_shorter() -> None:
    async def scenario(worker: Worker) -> None:
        batcher = Batcher(1, patience=1)
        worker.task.seconds_a_piece = 0.1
        asked = await start(*(batcher.ask(worker.task, sized(row)) for row in ("first", "a", "b")))
        with pytest.raises(OverloadedError) as caught:
            await batcher.ask(worker.task, sized("c"))
        assert caught.value.retry_after == pytest.approx(2)
        worker.free.set()
        await asyncio.gather(*asked)
        assert batcher.backlog == 0
        assert await batcher.ask(worker.task, sized("c")) == ["c!"]

    run(scenario)
