import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from app.errors import OverloadedError, UnavailableError
from app.models.batcher import MAX_BATCH_TOKENS, MAX_ROWS, Batcher, Task


class Worker:
    """Records batches and blocks them until `released` is set."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.released = asyncio.Event()
        self.task = Task("work", self.run)

    async def run(self, rows: Sequence[Any]) -> list[Any]:
        self.batches.append(list(rows))
        await self.released.wait()
        if "down" in rows:
            raise UnavailableError("away")
        if "bad" in rows:
            raise ValueError("a row is bad")
        return [f"{row}!" for row in rows]


def sized(*rows: Any, tokens: int = 10) -> list[tuple[Any, int]]:
    return [(row, tokens) for row in rows]


def run(scenario: Callable[[Worker], Awaitable[None]]) -> None:
    async def start_scenario() -> None:
        await asyncio.wait_for(scenario(Worker()), 60)

    asyncio.run(start_scenario())


async def start(*submissions: Any) -> list[asyncio.Task[Any]]:
    """Start submissions and let all of them enter the queue."""
    tasks = [asyncio.ensure_future(submission) for submission in submissions]
    for _ in range(5):
        await asyncio.sleep(0)
    return tasks


async def cancel(*submissions: asyncio.Task[Any]) -> None:
    """Cancel submissions and wait until they have ended."""
    for submission in submissions:
        submission.cancel()
    await asyncio.gather(*submissions, return_exceptions=True)


def test_idle_stream_takes_queued_rows_at_once() -> None:
    async def scenario(worker: Worker) -> None:
        worker.released.set()
        batcher = Batcher(1, 10)
        assert await batcher.submit("me", worker.task, sized("a")) == ["a!"]
        assert await batcher.submit("me", worker.task, sized("a", "b")) == ["a!", "b!"]
        assert worker.batches == [["a"], ["a", "b"]]

    run(scenario)


def test_rows_queued_while_streams_are_busy_form_one_batch() -> None:
    async def scenario(worker: Worker) -> None:
        batcher = Batcher(1, 10)
        submitted = await start(
            *(batcher.submit("me", worker.task, sized(name)) for name in "abcd")
        )
        worker.released.set()
        assert await asyncio.gather(*submitted) == [["a!"], ["b!"], ["c!"], ["d!"]]
        assert worker.batches == [["a"], ["b", "c", "d"]]

    run(scenario)


def test_idle_streams_share_queued_rows() -> None:
    async def scenario(worker: Worker) -> None:
        batcher = Batcher(2, 10)
        worker.released.set()
        results = await batcher.submit("me", worker.task, sized(*"abcde"))
        assert results == [f"{name}!" for name in "abcde"]
        assert worker.batches == [["a", "b", "c"], ["d", "e"]]

    run(scenario)


def test_single_idle_stream_leaves_share_for_busy_stream() -> None:
    async def scenario(worker: Worker) -> None:
        batcher = Batcher(2, 10)
        submitted = await start(*(batcher.submit("me", worker.task, sized(name)) for name in "ab"))
        submitted += await start(batcher.submit("me", worker.task, sized(*"cdef")))
        worker.released.set()
        await asyncio.gather(*submitted)
        assert worker.batches[:3] == [["a"], ["b"], ["c", "d"]]

    run(scenario)


def test_streams_run_batches_in_parallel() -> None:
    async def scenario(worker: Worker) -> None:
        batcher = Batcher(2, 10)
        submitted = await start(*(batcher.submit("me", worker.task, sized(name)) for name in "abc"))
        assert worker.batches == [["a"], ["b"]]
        worker.released.set()
        await asyncio.gather(*submitted)

    run(scenario)


def test_rows_of_different_length_use_separate_batches() -> None:
    async def scenario(worker: Worker) -> None:
        batcher = Batcher(1, 10)
        rows = [("first", 9), ("short", 9), ("long", 90), ("short too", 12), ("longer", 120)]
        submitted = await start(*(batcher.submit("me", worker.task, [row]) for row in rows))
        worker.released.set()
        await asyncio.gather(*submitted)
        assert worker.batches == [["first"], ["short", "short too"], ["long", "longer"]]

    run(scenario)


def test_batch_prefers_rows_of_most_similar_length() -> None:
    async def scenario(worker: Worker) -> None:
        batcher = Batcher(1, 1e9)
        rows = [("first", 9), ("head", 20), *((str(number), 30) for number in range(40))]
        rows += [("near", 21), ("nearer", 20)]
        submitted = await start(*(batcher.submit("me", worker.task, [row]) for row in rows))
        worker.released.set()
        await asyncio.gather(*submitted)
        assert worker.batches[1][:3] == ["head", "nearer", "near"]
        assert len(worker.batches[1]) == MAX_ROWS

    run(scenario)


def test_batch_contains_one_task() -> None:
    async def scenario(worker: Worker) -> None:
        batcher = Batcher(1, 10)
        other = Task("other", worker.run)
        tasks = [worker.task, worker.task, other, worker.task]
        submitted = await start(
            *(batcher.submit("me", task, sized(str(number))) for number, task in enumerate(tasks))
        )
        worker.released.set()
        await asyncio.gather(*submitted)
        assert worker.batches == [["0"], ["1", "3"], ["2"]]

    run(scenario)


@pytest.mark.parametrize("tokens", [1, 200, 5000])
def test_batch_size_is_limited_in_rows_and_tokens(tokens: int) -> None:
    async def scenario(worker: Worker) -> None:
        worker.released.set()
        rows = [str(number) for number in range(3 * MAX_ROWS)]
        batcher = Batcher(1, 1e9)
        results = await batcher.submit("me", worker.task, sized(*rows, tokens=tokens))
        assert results == [f"{row}!" for row in rows]
        largest = max(map(len, worker.batches))
        assert largest <= MAX_ROWS
        assert largest == 1 or largest * tokens <= MAX_BATCH_TOKENS

    run(scenario)


def test_task_can_limit_rows_per_batch() -> None:
    async def scenario(worker: Worker) -> None:
        worker.released.set()
        task = Task("large", worker.run, max_rows=1)
        assert await Batcher(1, 10).submit("me", task, sized("a", "b")) == ["a!", "b!"]
        assert worker.batches == [["a"], ["b"]]

    run(scenario)


def test_failing_row_does_not_fail_other_rows() -> None:
    async def scenario(worker: Worker) -> None:
        batcher = Batcher(1, 10)
        submitted = await start(
            *(batcher.submit("me", worker.task, sized(row)) for row in ("first", "a", "bad", "b"))
        )
        worker.released.set()
        first, a, bad, b = await asyncio.gather(*submitted, return_exceptions=True)
        assert (first, a, b) == (["first!"], ["a!"], ["b!"])
        assert isinstance(bad, ValueError)
        assert worker.batches == [["first"], ["a", "bad", "b"], ["a"], ["bad"], ["b"]]
        assert await batcher.submit("me", worker.task, sized("c")) == ["c!"]

    run(scenario)


def test_unavailable_model_is_not_retried_row_by_row() -> None:
    async def scenario(worker: Worker) -> None:
        worker.released.set()
        batcher = Batcher(1, 10)
        with pytest.raises(UnavailableError):
            await batcher.submit("me", worker.task, sized("a", "down"))
        assert worker.batches == [["a", "down"]]
        assert await batcher.submit("me", worker.task, sized("b")) == ["b!"]

    run(scenario)


def test_canceled_rows_are_dropped() -> None:
    async def scenario(worker: Worker) -> None:
        batcher = Batcher(1, 10)
        first, canceled, last = await start(
            *(
                batcher.submit("me", worker.task, sized(row))
                for row in ("first", "canceled", "last")
            )
        )
        canceled.cancel()
        await asyncio.sleep(0)
        worker.released.set()
        assert await asyncio.gather(first, last) == [["first!"], ["last!"]]
        assert worker.batches == [["first"], ["last"]]

    run(scenario)


def test_equal_unfinished_rows_of_a_client_are_computed_once() -> None:
    async def scenario(worker: Worker) -> None:
        batcher = Batcher(1, 10)
        rows = ("running", "queued", "running", "queued")
        submitted = await start(*(batcher.submit("me", worker.task, sized(row)) for row in rows))
        submitted += await start(batcher.submit("me", worker.task, sized("queued", "new")))
        worker.released.set()
        results = await asyncio.gather(*submitted)
        assert results == [[f"{row}!"] for row in rows] + [["queued!", "new!"]]
        assert worker.batches == [["running"], ["queued", "new"]]
        assert await batcher.submit("me", worker.task, sized("queued")) == ["queued!"]
        assert worker.batches[2:] == [["queued"]]

    run(scenario)


def test_equal_rows_of_other_clients_tasks_and_models_are_computed_again() -> None:
    async def scenario(worker: Worker) -> None:
        batcher = Batcher(1, 10)
        submitted = await start(
            batcher.submit("me", worker.task, sized("row")),
            batcher.submit("other", worker.task, sized("row")),
            batcher.submit("me", Task("other", worker.run), sized("row")),
        )
        batcher.stop_sharing()
        submitted += await start(batcher.submit("me", worker.task, sized("row")))
        worker.released.set()
        assert await asyncio.gather(*submitted) == [["row!"]] * 4
        assert sum(batch.count("row") for batch in worker.batches) == 4

    run(scenario)


def test_canceled_call_does_not_cancel_another_that_shares_its_row() -> None:
    async def scenario(worker: Worker) -> None:
        batcher = Batcher(1, 10)
        first, *sharing = await start(
            *(batcher.submit("me", worker.task, sized(row)) for row in ("first", "a", "a", "a"))
        )
        await cancel(sharing[0], sharing[2])
        assert batcher.backlog > 0
        worker.released.set()
        assert await asyncio.gather(first, sharing[1]) == [["first!"], ["a!"]]
        assert worker.batches == [["first"], ["a"]]

    run(scenario)


def test_row_is_dropped_when_all_calls_that_share_it_are_canceled() -> None:
    async def scenario(worker: Worker) -> None:
        batcher = Batcher(1, 10)
        first, *sharing = await start(
            *(batcher.submit("me", worker.task, sized(row)) for row in ("first", "a", "a"))
        )
        await cancel(*sharing)
        (again,) = await start(batcher.submit("me", worker.task, sized("a")))
        worker.released.set()
        assert await asyncio.gather(first, again) == [["first!"], ["a!"]]
        assert worker.batches == [["first"], ["a"]]

    run(scenario)


def test_failing_row_fails_all_calls_that_share_it() -> None:
    async def scenario(worker: Worker) -> None:
        batcher = Batcher(1, 10)
        submitted = await start(
            *(batcher.submit("me", worker.task, sized(row)) for row in ("first", "bad", "bad"))
        )
        worker.released.set()
        _, *errors = await asyncio.gather(*submitted, return_exceptions=True)
        assert [type(error) for error in errors] == [ValueError, ValueError]

    run(scenario)


def test_canceled_rows_do_not_count_as_backlog() -> None:
    async def scenario(worker: Worker) -> None:
        batcher = Batcher(1, max_wait=1)
        worker.task.seconds_per_token = 0.1
        first, *canceled = await start(
            *(batcher.submit("me", worker.task, sized(row)) for row in ("first", "a", "b"))
        )
        await cancel(*canceled)
        assert batcher.backlog == 0
        (another,) = await start(batcher.submit("me", worker.task, sized("c")))
        worker.released.set()
        assert await asyncio.gather(first, another) == [["first!"], ["c!"]]

    run(scenario)


def test_long_queue_refuses_rows_until_it_is_shorter() -> None:
    async def scenario(worker: Worker) -> None:
        batcher = Batcher(1, max_wait=1)
        worker.task.seconds_per_token = 0.1
        submitted = await start(
            *(batcher.submit("me", worker.task, sized(row)) for row in ("first", "a", "b"))
        )
        with pytest.raises(OverloadedError) as caught:
            await batcher.submit("me", worker.task, sized("c"))
        assert caught.value.retry_after == pytest.approx(2)
        worker.released.set()
        await asyncio.gather(*submitted)
        assert batcher.backlog == 0
        assert await batcher.submit("me", worker.task, sized("c")) == ["c!"]

    run(scenario)


def test_client_with_few_rows_does_not_wait_for_all_rows_of_another() -> None:
    async def scenario(worker: Worker) -> None:
        batcher = Batcher(1, 1e9)
        many = [f"many {number}" for number in range(10 * MAX_ROWS)]
        submitted = await start(
            batcher.submit("heavy", worker.task, sized(*many)),
            batcher.submit("light", worker.task, sized("few", tokens=100)),
        )
        worker.released.set()
        await asyncio.gather(*submitted)
        assert ["few"] in worker.batches[:3]

    run(scenario)


def test_clients_share_batches_in_proportion_to_tokens() -> None:
    async def scenario(worker: Worker) -> None:
        batcher = Batcher(1, 1e9)
        names = ("short", "long")
        submitted = await start(
            batcher.submit("a", worker.task, sized(*["short"] * 8 * MAX_ROWS, tokens=10)),
            batcher.submit("b", worker.task, sized(*["long"] * 8 * MAX_ROWS, tokens=30)),
        )
        worker.released.set()
        await asyncio.gather(*submitted)
        half = worker.batches[: len(worker.batches) // 2]
        short, long = (sum(batch.count(name) for batch in half) for name in names)
        assert short == pytest.approx(3 * long, abs=6 * MAX_ROWS)

    run(scenario)


def test_full_queue_of_one_client_refuses_no_other_client() -> None:
    async def scenario(worker: Worker) -> None:
        batcher = Batcher(1, max_wait=1)
        worker.task.seconds_per_token = 0.1
        submitted = await start(
            *(batcher.submit("heavy", worker.task, sized(row)) for row in ("first", "a", "b"))
        )
        with pytest.raises(OverloadedError):
            await batcher.submit("heavy", worker.task, sized("c"))
        submitted += await start(batcher.submit("light", worker.task, sized("d")))
        worker.released.set()
        assert await asyncio.gather(*submitted) == [["first!"], ["a!"], ["b!"], ["d!"]]

    run(scenario)
