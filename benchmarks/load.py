"""Load on the web application: closed-loop and open-loop clients, and the offline reference."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import aiohttp

REFUSALS = (429, 503)
"""Status codes with which an overloaded server refuses a request."""

TIMEOUT_SECONDS = 120.0
"""Timeout of a request, longer than the application's own deadline."""

RETRY_SECONDS = 0.5
"""Pause of a client after a refusal, even if Retry-After asks for a longer one."""


@dataclass
class LoadResults:
    """Results of all clients."""

    duration: float = 0.0  # seconds
    answered: list[float] = field(default_factory=list)  # response times in seconds
    refused: list[float] = field(default_factory=list)  # response times in seconds
    errors: Counter[str] = field(default_factory=Counter)


class Load:
    """Sends translation requests. Every sentence is sent once before any is repeated."""

    def __init__(self, url: str, texts: Sequence[str], fields: dict[str, Any]) -> None:
        """Set up the requests.

        Args:
            url: Address of the web application.
            texts: Sentences to send.
            fields: Further fields of each request.
        """
        self._url = f"{url.rstrip('/')}/api/v1/translate"
        self._texts = texts
        self._next = count()
        self._fields = fields

    def closed_loop(self, clients: int, seconds: float) -> LoadResults:
        """Run clients that send a request as soon as the previous one is answered."""
        return self._run(lambda send, end: self._closed_loop(send, end, clients), seconds)

    def open_loop(self, rate: float, seconds: float) -> LoadResults:
        """Send `rate` requests per second at random times, regardless of pending responses."""
        return self._run(lambda send, end: self._open_loop(send, end, rate), seconds)

    async def _closed_loop(self, send: "Send", end: float, clients: int) -> None:
        async def client() -> None:
            while time.monotonic() < end:
                if not await send(time.monotonic()):
                    await asyncio.sleep(RETRY_SECONDS)

        await asyncio.gather(*(client() for _ in range(clients)))

    async def _open_loop(self, send: "Send", end: float, rate: float) -> None:
        generator = random.Random(1)
        due = time.monotonic()
        async with asyncio.TaskGroup() as group:
            while (due := due + generator.expovariate(rate)) < end:
                await asyncio.sleep(due - time.monotonic())
                # The response time starts when the request was due. A delay of this process
                # counts, too.
                group.create_task(send(due))  # type: ignore[arg-type]

    def _run(self, load: Callable[["Send", float], Awaitable[None]], seconds: float) -> LoadResults:
        async def run() -> LoadResults:
            results = LoadResults()
            async with aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                timeout=aiohttp.ClientTimeout(TIMEOUT_SECONDS),
            ) as client:
                start = time.monotonic()
                await load(lambda due: self._send(client, results, due), start + seconds)
                results.duration = time.monotonic() - start
            return results

        return asyncio.run(run())

    async def _send(self, client: aiohttp.ClientSession, results: LoadResults, due: float) -> bool:
        """Send a request that was due at `due`; return whether it was answered."""
        text = self._texts[next(self._next) % len(self._texts)]
        try:
            async with client.post(self._url, json={"text": text, **self._fields}) as response:
                await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            results.errors[type(error).__name__] += 1
            return False
        seconds = time.monotonic() - due
        if response.status == 200:
            results.answered.append(seconds)
        elif response.status in REFUSALS and "Retry-After" in response.headers:
            results.refused.append(seconds)
        else:
            results.errors[str(response.status)] += 1
        return response.status == 200


Send = Callable[[float], Awaitable[bool]]
"""Sends a request that is due at a time of `time.monotonic`; returns whether it was answered."""


def offline(
    export: str, texts: Sequence[str], fields: Mapping[str, str], rows: int, seconds: float
) -> float:
    """Measure the default signature of a SavedModel without a server.

    Args:
        export: A version folder of an export.
        texts: Sentences to translate.
        fields: Further inputs of each text.
        rows: Sentences per batch; the batches run one by one.
        seconds: Duration, after which no further batch starts.

    Returns:
        Sentences per second.
    """
    import tensorflow as tf

    translate = tf.saved_model.load(export).signatures["serving_default"]
    batches = [list(texts[start : start + rows]) for start in range(0, len(texts), rows)]

    def run(batch: list[str]) -> None:
        others = {name: tf.constant([value] * len(batch)) for name, value in fields.items()}
        translate(text=tf.constant(batch), **others)

    run(batches[0])
    done = 0
    start = time.monotonic()
    for batch in batches:
        run(batch)
        done += len(batch)
        if time.monotonic() > start + seconds:
            break
    return done / (time.monotonic() - start)
