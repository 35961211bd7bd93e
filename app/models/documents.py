"""Documents that are being translated, and their translations until they are deleted."""

import asyncio
import logging
import secrets
import time
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal
from weakref import WeakValueDictionary

from app.engines.engine import Direction
from app.errors import ApiError, OverloadedError
from app.models.model import Model
from app.models.segments import SegmentTranslator, in_thread
from tfnmt.documents.segments import Document
from tfnmt.documents.translation import Notices, Options

MAX_DOCUMENTS = 20
"""Maximum documents that are kept, in any state."""

MAX_PER_CLIENT = 5

PARALLEL = 2
"""Documents that are read, and that are translated, at the same time, of different clients. The
others wait."""

reading_threads = ThreadPoolExecutor(PARALLEL, "documents")
"""Threads of their own, because a thread cannot be stopped: documents that take too long to read do
not occupy those of other requests."""

logger = logging.getLogger("app")

State = Literal["waiting", "translating", "done", "failed", "canceled"]


@dataclass(eq=False)
class DocumentJob:
    """A document and the state of its translation."""

    id: str
    client: Hashable
    suffix: str
    direction: Direction
    state: State = "waiting"
    sentences: int = 0
    done: int = 0
    error: str = ""
    notices: Notices = field(default_factory=Notices)
    content: bytes = b""
    expires_at: float = 0.0
    """Seconds since the epoch, from the end of the translation."""
    refund: Callable[[float], None] = lambda share: None
    """Gives a share of the quota back to the client."""
    task: "asyncio.Task[None] | None" = None

    @property
    def file_name(self) -> str:
        """The name of the translation: the name that the client gave is never used."""
        return f"{self.id}{self.suffix}"

    @property
    def missing_share(self) -> float:
        """The share of the sentences that is not translated yet."""
        return 1 - self.done / self.sentences if self.sentences else 1.0

    @property
    def is_active(self) -> bool:
        """Whether the document waits or is being translated."""
        return self.state in ("waiting", "translating")


class Slots:
    """Places for the documents that are processed at the same time, at most one per client.

    A client with many documents thus waits in line with one of them, and not with all.
    """

    def __init__(self, slots: int) -> None:
        """Create empty slots."""
        self._slots = asyncio.Semaphore(slots)
        self._turns: WeakValueDictionary[Hashable, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def take(self, client: Hashable) -> AsyncIterator[None]:
        """Wait for a slot, and hold it."""
        turn = self._turns.setdefault(client, asyncio.Lock())
        async with turn, self._slots:
            yield


class DocumentJobs:
    """Documents in memory. Each is deleted after a time, or when its client asks for it."""

    def __init__(self, keep_seconds: float, max_seconds: float) -> None:
        """Create an empty collection.

        Args:
            keep_seconds: Time after which a finished document is deleted.
            max_seconds: Maximum time to translate a document.
        """
        self._keep_seconds = keep_seconds
        self._max_seconds = max_seconds
        self._jobs: dict[str, DocumentJob] = {}
        self._slots = Slots(PARALLEL)
        self._read_slots = Slots(PARALLEL)
        self._reading: Counter[Hashable] = Counter()
        """Documents that are being read, by client."""

    @asynccontextmanager
    async def reading(self, client: Hashable) -> AsyncIterator[None]:
        """Reserve a place for a document, and wait for the turn to read it.

        Raises:
            ApiError: There are too many documents, or reading takes too long.
        """
        self._check_room(client)
        self._reading[client] += 1
        try:
            async with self._read_slots.take(client), asyncio.timeout(self._max_seconds):
                yield
        except TimeoutError as error:
            raise ApiError(422, "invalid", "file: takes too long to read; divide it") from error
        finally:
            self._reading -= Counter([client])

    def _check_room(self, client: Hashable) -> None:
        self._delete_expired()
        active = [job for job in self._jobs.values() if job.client == client and job.is_active]
        if len(active) + self._reading[client] >= MAX_PER_CLIENT:
            message = f"more than {MAX_PER_CLIENT} documents at a time; wait for one of them"
            raise ApiError(429, "rate_limited", message, retry_after=10)
        if len(self._jobs) - len(self._finished()) + self._reading.total() >= MAX_DOCUMENTS:
            raise OverloadedError(10)

    def _finished(self) -> list[DocumentJob]:
        return [job for job in self._jobs.values() if not job.is_active]

    def start(
        self,
        client: Hashable,
        suffix: str,
        document: Document,
        model: Model,
        direction: Direction,
        options: Options,
        refund: Callable[[float], None] = lambda share: None,
    ) -> DocumentJob:
        """Start to translate a document that has been read, and return its job.

        If too many documents are kept, a finished one is deleted, first one of this client. If the
        document is not translated to its end, the share that is missing is refunded.
        """
        if len(self._jobs) >= MAX_DOCUMENTS:
            self.delete(
                min(self._finished(), key=lambda job: (job.client != client, job.expires_at))
            )
        job = DocumentJob(secrets.token_urlsafe(18), client, suffix, direction, refund=refund)
        self._jobs[job.id] = job
        job.task = asyncio.create_task(self._run(job, document, model, options))
        return job

    def find(self, job_id: str) -> DocumentJob:
        """Return a job by its id, which is a secret of its client.

        Raises:
            ApiError: There is no such document, or it has been deleted.
        """
        self._delete_expired()
        job = self._jobs.get(job_id)
        if job is None:
            raise ApiError(404, "not_found", "document: not found; it may have been deleted")
        return job

    def delete(self, job: DocumentJob) -> None:
        """Cancel a job and delete its document."""
        if job.task is not None:
            job.task.cancel()
        if job.is_active:
            job.state = "canceled"
            job.refund(job.missing_share)
        job.content = b""
        self._jobs.pop(job.id, None)

    def close(self) -> None:
        """Delete all documents."""
        for job in list(self._jobs.values()):
            self.delete(job)

    def _delete_expired(self) -> None:
        now = time.time()
        for job in [job for job in self._finished() if job.expires_at <= now]:
            self.delete(job)

    async def _run(
        self,
        job: DocumentJob,
        document: Document,
        model: Model,
        options: Options,
    ) -> None:
        def progress(done: int, total: int) -> None:
            job.done, job.sentences = done, total

        try:
            async with self._slots.take(job.client), asyncio.timeout(self._max_seconds):
                job.state = "translating"
                translator = SegmentTranslator(
                    model, job.client, job.direction, patience=self._max_seconds
                )
                job.notices = await translator.run(document.segments, options, progress)
                job.content = await in_thread(document.write)
                job.state = "done"
        except ApiError as error:
            _fail(job, error.message)
        except TimeoutError:
            limit = round(self._max_seconds)
            _fail(job, f"the translation took longer than {limit} seconds; divide the document")
        except asyncio.CancelledError:
            job.state = "canceled"
            raise
        except Exception as error:  # hidden from the client; its message may contain a text
            _fail(job, "the document could not be translated")
            frame = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{type(error).__name__} at {frame.filename}:{frame.lineno}"
            logger.error("document failed", extra={"fields": {"error": place}})
        finally:
            job.expires_at = time.time() + self._keep_seconds
            asyncio.get_running_loop().call_later(self._keep_seconds + 1, self._delete_expired)


def _fail(job: DocumentJob, problem: str) -> None:
    job.state, job.error = "failed", problem
    job.refund(job.missing_share)
