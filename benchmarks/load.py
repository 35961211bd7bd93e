"""The web application under load: who asks when, and what they see."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import aiohttp

REFUSALS = (429, 503)
"""Answers that are none, given in time: the server has too much to do."""

PATIENCE = 120.0
"""Seconds for an answer: longer than the application's own deadline."""

PAUSE = 0.5
"""Seconds that a client waits after a refusal, though Retry-After may say more."""


@dataclass
class Seen:
    """What all clients have seen: seconds of answers and of refusals, and what went wrong."""

    took: float = 0.0
    answered: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)


class Load:
    """Sends sentences, each once before any comes again."""

    def __init__(self, url: str, texts: Sequence[str], fields: dict[str, Any]) -> None:
        """`fields` go with every text."""
        self._url = f"{url.rstrip('/')}/api/v1/translate"
        self._texts = texts
        self._next = count()
        self._fields = fields

    def closed(self, clients: int, seconds: float) -> Seen:
        """So many clients, each of which asks again when its answer is there."""
        return self._run(lambda send, end: self._closed(send, end, clients), seconds)

    def open(self, rate: float, seconds: float) -> Seen:
        """Requests at random moments, so many a second, whether or not others are answered."""
        return self._run(lambda send, end: self._open(send, end, rate), seconds)

    async def _closed(self, send: "Send", end: float, clients: int) -> None:
        async def client() -> None:
            while time.monotonic() < end:
                if not await send(time.monotonic()):
                    await asyncio.sleep(PAUSE)

        await asyncio.gather(*(client() for _ in range(clients)))

    async def _open(self, send: "Send", end: float, rate: float) -> None:
        draw = random.Random(1)
        moment = time.monotonic()
        async with asyncio.TaskGroup() as group:
            while (moment := moment + draw.expovariate(rate)) < end:
                await asyncio.sleep(moment - time.monotonic())
                # From the moment that was drawn on: what it waits for us is waited, too.
                group.create_task(send(moment))  # type: ignore[arg-type]

    def _run(self, load: Callable[["Send", float], Awaitable[None]], seconds: float) -> Seen:
        async def run() -> Seen:
            seen = Seen()
            async with aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(PATIENCE)
            ) as client:
                begun = time.monotonic()
                await load(lambda moment: self._send(client, seen, moment), begun + seconds)
                seen.took = time.monotonic() - begun
            return seen

        return asyncio.run(run())

    async def _send(self, client: aiohttp.ClientSession, seen: Seen, begun: float) -> bool:
        """Whether a translation came; its time counts from `begun` on."""
        text = self._texts[next(self._next) % len(self._texts)]
        try:
            async with client.post(self._url, json={"text": text, **self._fields}) as answer:
                await answer.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            seen.errors[type(error).__name__] += 1
            return False
        seconds = time.monotonic() - begun
        if answer.status == 200:
            seen.answered.append(seconds)
        elif answer.status in REFUSALS and "Retry-After" in answer.headers:
            seen.refused.append(seconds)
        else:
            seen.errors[str(answer.status)] += 1
        return answer.status == 200


Send = Callable[[float], Awaitable[bool]]
"""Asks for a translation that is due at a moment."""


def offline(export: str, texts: Sequence[str], rows: int, seconds: float) -> float:
    """Sentences a second of a SavedModel's default signature, so many in a batch, one by one."""
    import tensorflow as tf

    translate = tf.saved_model.load(export).signatures["serving_default"]
    batches = [list(texts[start : start + rows]) for start in range(0, len(texts), rows)]
    translate(text=tf.constant(batches[0]))
    done = 0
    begun = time.monotonic()
    for batch in batches:
        translate(text=tf.constant(batch))
        done += len(batch)
        if time.monotonic() > begun + seconds:
            break
    return done / (time.monotonic() - begun)
