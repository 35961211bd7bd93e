"""Dynamic batching: rows of requests that arrive at the same time share a batch."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

from app.errors import ApiError, OverloadedError

MAX_ROWS = 32
"""Maximum rows per batch. More rows hardly reduce the time per row, and all rows of a batch wait
for the longest one."""

MAX_BATCH_TOKENS = 4096
"""Maximum padded tokens per batch (rows times the longest row), which bounds its memory."""

MAX_LENGTH_RATIO = 2.0
"""Rows of a batch differ in length from its first row by less than this factor."""

INITIAL_SECONDS_PER_TOKEN = 0.002
"""Estimate of the time per token until the first measurement."""

SMOOTHING = 0.2
"""Weight of the latest batch in the moving average of the time per token."""


@dataclass(eq=False)
class Task:
    """An operation on rows, which runs on all rows of a batch at once."""

    name: str
    run: Callable[[Sequence[Any]], Awaitable[Sequence[Any]]]
    max_rows: int = MAX_ROWS
    seconds_per_token: float = INITIAL_SECONDS_PER_TOKEN


@dataclass(eq=False)
class Job:
    """A row in the queue and its future result."""

    client: Hashable
    task: Task
    row: Any
    tokens: int
    start: float
    """Virtual time at which the row may run; see `Batcher`."""
    result: asyncio.Future[Any] = field(default_factory=asyncio.Future)
    waiting: int = 0
    """Calls that wait for the result. The job is canceled when none is left."""
    queued_at: float = field(default_factory=time.monotonic)

    def length_ratio(self, other: "Job") -> float:
        """Return the longer length divided by the shorter one, at least 1."""
        return max(self.tokens / other.tokens, other.tokens / self.tokens)

    @property
    def seconds(self) -> float:
        """Estimated processing time."""
        return self.tokens * self.task.seconds_per_token

    @property
    def end(self) -> float:
        """Virtual time at which the next row of the client may run."""
        return self.start + self.seconds


class Observer:
    """Receives measurements of batches. This base class ignores them."""

    def batch(self, task: str, rows: int, fill: float, seconds: float, waited: float) -> None:
        """Record a finished batch.

        Args:
            task: Name of the task.
            rows: Number of rows.
            fill: Share of the padded tokens that are not padding.
            seconds: Processing time.
            waited: Seconds that the first row was in the queue.
        """

    def lookups(self, hits: int, misses: int) -> None:
        """Record sentences looked up in the cache.

        Args:
            hits: Number of sentences found.
            misses: Number of sentences to translate.
        """


class Batcher:
    """Forms a batch of queued rows whenever a parallel stream is idle.

    A stream runs one batch at a time. An idle stream never waits for a batch to fill: it takes the
    rows that are queued. Batches form while all streams are busy. The first row decides the task
    and the length of a batch. Rows of the same task join it if they are less than
    `MAX_LENGTH_RATIO` times as long or as short, the most similar first, because padding makes all
    rows as expensive as the longest.

    Clients share the model fairly (start-time fair queuing). The rows of a client are lined up in
    virtual time, each at the end of the one before. The queue is sorted by that time, so that a
    client with few rows does not wait for all rows of another client.

    If several streams are idle, they divide the rows between them. If only one stream is idle, it
    takes the share of one stream and leaves the rest for the others.

    A client's row that equals one of its unfinished rows shares the result of that row. Clients
    never share: a fast answer must not tell a client what the others translate.
    """

    def __init__(
        self, parallel_streams: int, max_wait: float, observer: Observer | None = None
    ) -> None:
        """Create an empty queue.

        Args:
            parallel_streams: Number of batches that run in parallel.
            max_wait: Seconds that a client's rows may wait. New rows of a client whose rows wait
                longer are refused.
            observer: Receives measurements of batches.
        """
        self._parallel_streams = parallel_streams
        self._idle_streams = parallel_streams
        self._max_wait = max_wait
        self._observer = observer or Observer()
        self._queue: list[Job] = []
        # Weak, so that a job leaves when its batch and all calls are done with it.
        self._shared: WeakValueDictionary[tuple[Hashable, Task, Any], Job] = WeakValueDictionary()
        self._virtual_time = 0.0
        self._running: set[asyncio.Task[None]] = set()

    @property
    def backlog(self) -> float:
        """Estimated seconds until the queue is empty."""
        return sum(self._queued_seconds().values()) / self._parallel_streams

    async def submit(
        self, client: Hashable, task: Task, rows: Sequence[tuple[Any, int]]
    ) -> list[Any]:
        """Queue rows and return their results.

        Args:
            client: The client that sent the rows.
            task: The operation.
            rows: Rows, which are hashable, with their approximate lengths in tokens.

        Raises:
            OverloadedError: The client's queued rows wait too long.
        """
        self._check_wait(client)
        return await self.submit_regardless(client, task, rows)

    async def submit_regardless(
        self, client: Hashable, task: Task, rows: Sequence[tuple[Any, int]]
    ) -> list[Any]:
        """Queue rows even if the queue is long; see `submit`.

        If the caller is canceled, the rows that no other call waits for are dropped from the queue.
        """
        jobs = self._enqueue(client, task, rows)
        for job in jobs:
            job.waiting += 1
        self._dispatch()
        try:
            # Shielded, because canceling this call must not cancel the result of another one.
            return await asyncio.gather(*(asyncio.shield(job.result) for job in jobs))
        finally:
            for job in jobs:
                job.waiting -= 1
                if not job.waiting:
                    job.result.cancel()

    def stop_sharing(self) -> None:
        """Share no results of the rows that are unfinished now, because the model has changed."""
        self._shared.clear()

    def _enqueue(self, client: Hashable, task: Task, rows: Sequence[tuple[Any, int]]) -> list[Job]:
        """Return the job of each row: the unfinished one of an equal row, or a new one.

        New jobs are queued after the client's earlier ones. The rows of one call do not share jobs.
        """
        earlier = (job.end for job in self._pending() if job.client == client)
        start = max([self._virtual_time, *earlier])
        jobs, new = [], []
        for row, tokens in rows:
            job = self._shared.get((client, task, row))
            if job is None or job.result.done():
                job = Job(client, task, row, tokens, start)
                start = job.end
                new.append(job)
            jobs.append(job)
        self._shared.update({(client, task, job.row): job for job in new})
        self._queue = sorted(self._queue + new, key=lambda job: job.start)
        return jobs

    def _check_wait(self, client: Hashable) -> None:
        """Refuse new rows if those of the client wait too long.

        Until they are done, each other client receives as much time as this one at most.
        """
        queued = self._queued_seconds()
        own = queued.get(client, 0.0)
        seconds = sum(min(own, other) for other in queued.values())
        excess = seconds / self._parallel_streams - self._max_wait
        if excess > 0:
            raise OverloadedError(retry_after=1 + excess)

    def _queued_seconds(self) -> dict[Hashable, float]:
        """Return the estimated processing time of each client's queued rows."""
        seconds: dict[Hashable, float] = {}
        for job in self._pending():
            seconds[job.client] = seconds.get(job.client, 0.0) + job.seconds
        return seconds

    def _pending(self) -> Iterator[Job]:
        """Yield the queued rows that are not canceled."""
        return (job for job in self._queue if not job.result.done())

    def _dispatch(self) -> None:
        """Start a batch on every idle stream."""
        only_one_idle = self._idle_streams == 1
        while self._idle_streams:
            shares = self._parallel_streams if only_one_idle else self._idle_streams
            batch = self._next_batch(shares)
            if not batch:
                return
            self._idle_streams -= 1
            running = asyncio.create_task(self._run_batch(batch))
            self._running.add(running)
            running.add_done_callback(self._running.discard)

    def _next_batch(self, shares: int) -> list[Job]:
        """Remove the next batch from the queue: one of `shares` equal parts of the rows that fit.

        Canceled rows are dropped.
        """
        self._queue = list(self._pending())
        if not self._queue:
            return []
        first = self._queue[0]
        self._virtual_time = max(self._virtual_time, first.start)
        fitting = [
            job
            for job in self._queue
            if job.task is first.task and job.length_ratio(first) < MAX_LENGTH_RATIO
        ]
        fitting.sort(key=first.length_ratio)  # stable: earlier rows first
        longest = max(job.tokens for job in fitting)
        share = -(-len(fitting) // shares)
        batch = fitting[: max(1, min(share, first.task.max_rows, MAX_BATCH_TOKENS // longest))]
        taken = set(batch)
        self._queue = [job for job in self._queue if job not in taken]
        return batch

    async def _run_batch(self, batch: list[Job]) -> None:
        """Run a batch. If it fails, run each row alone, so that one row cannot fail the others."""
        started = time.monotonic()
        try:
            _set_results(batch, await batch[0].task.run([job.row for job in batch]))
            self._record(batch, started)
        except ApiError as error:  # the model is the problem, not a row
            _set_error(batch, error)
        except Exception:
            for job in batch:
                await _run_alone(job)
        finally:
            self._idle_streams += 1
            self._dispatch()

    def _record(self, batch: list[Job], started: float) -> None:
        """Update the time per token and report the batch.

        The average counts batches that other rows waited for, and all batches that were faster
        than the estimate.
        """
        task, seconds = batch[0].task, time.monotonic() - started
        tokens = sum(job.tokens for job in batch)
        observed = seconds / tokens
        if self._queue or observed < task.seconds_per_token:
            task.seconds_per_token += SMOOTHING * (observed - task.seconds_per_token)
        fill = tokens / (len(batch) * max(job.tokens for job in batch))
        waited = started - min(job.queued_at for job in batch)
        self._observer.batch(task.name, len(batch), fill, seconds, waited)


async def _run_alone(job: Job) -> None:
    if job.result.done():
        return
    try:
        _set_results([job], await job.task.run([job.row]))
    except Exception as error:
        _set_error([job], error)


def _set_results(jobs: list[Job], results: Sequence[Any]) -> None:
    for job, result in zip(jobs, results, strict=True):
        if not job.result.done():
            job.result.set_result(result)


def _set_error(jobs: list[Job], error: Exception) -> None:
    for job in jobs:
        if not job.result.done():
            job.result.set_exception(error)
