"""Translating segments of documents and of markup with a served model.

`tfnmt.documents` is synchronous and runs in a thread of its own. Its sentences wait in the queue of
the model like those of any request.
"""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine, Hashable, Sequence
from typing import Any, TypeVar

from app.engines.engine import Alignment, Direction, Mode, Pair, Sentence
from app.errors import ApiError
from app.models.model import Model
from tfnmt.documents.segments import Segment
from tfnmt.documents.translation import Notices, Options, Progress, translate_segments
from tfnmt.errors import UserError

Result = TypeVar("Result")

REQUEST_THREADS = 32
"""Requests with markup, and documents, that are read or translated at the same time."""

_threads = concurrent.futures.ThreadPoolExecutor(REQUEST_THREADS, "segments")


async def in_thread(
    function: Callable[..., Result],
    *arguments: Any,
    threads: concurrent.futures.Executor = _threads,
) -> Result:
    """Run a function of `tfnmt.documents` in a thread.

    Raises:
        ApiError: The document is invalid, or a package is not installed.
    """
    try:
        return await asyncio.get_running_loop().run_in_executor(threads, function, *arguments)
    except UserError as error:
        raise ApiError(422, "invalid", "; ".join(error.problems)) from error
    except ImportError as error:
        message = f"format: the server has no package {error.name}; install tfnmt[documents]"
        raise ApiError(422, "unsupported", message) from error


class SegmentTranslator:
    """The sentences of one client in one direction, for a thread."""

    def __init__(
        self,
        model: Model,
        client: Hashable,
        direction: Direction,
        mode: Mode = "beam",
        patience: float = 0.0,
    ) -> None:
        """Create a translator; call it from any thread but that of the event loop.

        Args:
            model: The model.
            client: The client that sent the text.
            direction: The languages.
            mode: The search algorithm.
            patience: Seconds to wait if the queue is full.
        """
        self.scores: list[float] = []
        self.truncated = False
        self._model = model
        self._client = client
        self._direction = direction
        self._mode = mode
        self._patience = patience
        self._loop = asyncio.get_running_loop()
        self._canceled = threading.Event()
        self._running: asyncio.Task[Any] | None = None

    async def run(
        self, segments: Sequence[Segment], options: Options, progress: Progress | None = None
    ) -> Notices:
        """Translate segments in a thread. If this call is canceled, the thread ends soon.

        Raises:
            ApiError: The model cannot answer.
        """
        try:
            return await in_thread(translate_segments, segments, self, options, progress)
        finally:
            self._canceled.set()
            if self._running is not None:
                self._running.cancel()

    def translate(self, sentences: Sequence[str]) -> list[str]:
        """Return the translation of each sentence."""
        rows = [Sentence(sentence, self._direction) for sentence in sentences]
        found = self._wait(lambda: self._model.translate_sentences(self._client, rows, self._mode))
        self.scores += [translation.score for translation in found]
        self.truncated |= any(translation.truncated for translation in found)
        return [translation.text for translation in found]

    def align(self, pairs: Sequence[tuple[str, str]]) -> list[Alignment]:
        """Return the alignment of each sentence with its translation."""
        rows = [Pair(text, translation, self._direction) for text, translation in pairs]
        return self._wait(lambda: self._model.align_sentences(self._client, rows))

    def _wait(self, call: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Return the result of a call in the event loop; retry while the queue is full."""
        waited = 0.0
        while True:
            try:
                return asyncio.run_coroutine_threadsafe(self._run(call), self._loop).result()
            except ApiError as error:
                delay = error.retry_after
                if delay is None or waited + delay > self._patience:
                    raise
                self._canceled.wait(delay)
                waited += delay

    async def _run(self, call: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Run a call so that `run` can cancel it. Both run in the event loop and cannot race."""
        if self._canceled.is_set():
            raise asyncio.CancelledError
        self._running = asyncio.current_task()
        return await call()
