"""Requests that come at the same time are worked on together."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.errors import ApiError, OverloadedError

MAX_ROWS = 32
"""More rows make a batch hardly faster a row, and everybody in it waits for the longest."""

MAX_PIECES = 4096
"""Rows times the longest row: what bounds the memory that a batch takes."""

MOST_UNLIKE = 2.0

FIRST_GUESS = 0.002
"""Seconds a piece of work may take until it has been measured."""

SMOOTHING = 0.2
"""How much the latest batch counts in what is expected of the next."""


@dataclass(eq=False)
class Task:
    """Something that is done to rows, all of a batch at once."""

    name: str
    run: Callable[[Sequence[Any]], Awaitable[Sequence[Any]]]
    most_rows: int = MAX_ROWS
    seconds_a_piece: float = FIRST_GUESS


@dataclass(eq=False)
class Job:
    """A row that waits for its result."""

    task: Task
    row: Any
    pieces: int
    result: asyncio.Future[Any] = field(default_factory=asyncio.Future)
    since: float = field(default_factory=time.monotonic)

    def unlike(self, other: "Job") -> float:
        """How many times as long as the other it is, or the other as it."""
        return max(self.pieces / other.pieces, other.pieces / self.pieces)

    @property
    def seconds(self) -> float:
        """How long it will probably take."""
        return self.pieces * self.task.seconds_a_piece


class Observer:
    """Is told what happens; this one forgets it."""

    def batch(self, task: str, rows: int, fill: float, seconds: float, waited: float) -> None:
        """A batch is done: `fill` is the share of it that was no padding."""


class Batcher:
    """Forms batches of what is waiting whenever a lane is free.

    Nothing waits for a batch to fill: a free lane takes what is there, and while all lanes are busy
    batches form by themselves. The row that has waited longest decides task and length; others that
    are not twice or half as long join it, the nearest first, for all take as long as the longest.

    Lanes that are free together share what is there; one that comes alone takes the part of one
    lane, and leaves the rest to the next.
    """

    def __init__(self, lanes: int, patience: float, observer: Observer | None = None) -> None:
        """What would have to wait longer than `patience` seconds is refused."""
        self._lanes = lanes
        self._idle = lanes
        self._patience = patience
        self._observer = observer or Observer()
        self._waiting: list[Job] = []
        self._working: set[asyncio.Task[None]] = set()

    @property
    def backlog(self) -> float:
        """Seconds that what is waiting will take."""
        wanted = (job for job in self._waiting if not job.result.done())
        return sum(job.seconds for job in wanted) / self._lanes

    async def ask(self, task: Task, rows: Sequence[tuple[Any, int]]) -> list[Any]:
        """The results of rows, each given with its length in pieces, more or less.

        Raises an OverloadedError where they would have to wait too long.
        """
        self._admit()
        return await self.wait_for(task, rows)

    async def wait_for(self, task: Task, rows: Sequence[tuple[Any, int]]) -> list[Any]:
        """The same, however long it takes. When it is cancelled, its rows are wanted no more."""
        jobs = [Job(task, row, pieces) for row, pieces in rows]
        self._waiting += jobs
        self._dispatch()
        try:
            return await asyncio.gather(*(job.result for job in jobs))
        finally:
            for job in jobs:
                job.result.cancel()

    def _admit(self) -> None:
        excess = self.backlog - self._patience
        if excess > 0:
            raise OverloadedError(retry_after=1 + excess)

    def _dispatch(self) -> None:
        """Gives every free lane a batch."""
        others_come = self._idle == 1
        while self._idle and (batch := self._take(self._lanes if others_come else self._idle)):
            self._idle -= 1
            work = asyncio.create_task(self._work(batch))
            self._working.add(work)
            work.add_done_callback(self._working.discard)

    def _take(self, parts: int) -> list[Job]:
        """The next batch out of the queue, one of so many parts of what fits together.

        Those that nobody waits for any more are dropped.
        """
        self._waiting = [job for job in self._waiting if not job.result.done()]
        if not self._waiting:
            return []
        head = self._waiting[0]
        fitting = [j for j in self._waiting if j.task is head.task and j.unlike(head) < MOST_UNLIKE]
        fitting.sort(key=head.unlike)  # stable: first come, first served
        longest = max(job.pieces for job in fitting)
        share = -(-len(fitting) // parts)
        batch = fitting[: max(1, min(share, head.task.most_rows, MAX_PIECES // longest))]
        taken = set(batch)
        self._waiting = [job for job in self._waiting if job not in taken]
        return batch

    async def _work(self, batch: list[Job]) -> None:
        """Runs a batch; if it fails, each row for itself, so that one harms no other."""
        begun = time.monotonic()
        try:
            _settle(batch, await batch[0].task.run([job.row for job in batch]))
            self._learn(batch, begun)
        except ApiError as problem:  # with the model, not with a row
            _fail(batch, problem)
        except Exception:
            for job in batch:
                await _work_alone(job)
        finally:
            self._idle += 1
            self._dispatch()

    def _learn(self, batch: list[Job], begun: float) -> None:
        """From batches that others waited behind, how fast work gets done; and from faster ones."""
        task, seconds = batch[0].task, time.monotonic() - begun
        pieces = sum(job.pieces for job in batch)
        observed = seconds / pieces
        if self._waiting or observed < task.seconds_a_piece:
            task.seconds_a_piece += SMOOTHING * (observed - task.seconds_a_piece)
        fill = pieces / (len(batch) * max(job.pieces for job in batch))
        waited = begun - min(job.since for job in batch)
        self._observer.batch(task.name, len(batch), fill, seconds, waited)


async def _work_alone(job: Job) -> None:
    if job.result.done():
        return
    try:
        _settle([job], await job.task.run([job.row]))
    except Exception as error:
        _fail([job], error)


def _settle(jobs: list[Job], results: Sequence[Any]) -> None:
    for job, result in zip(jobs, results, strict=True):
        if not job.result.done():
            job.result.set_result(result)


def _fail(jobs: list[Job], error: Exception) -> None:
    for job in jobs:
        if not job.result.done():
            job.result.set_exception(error)
