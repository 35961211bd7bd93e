"""What all routes that translate share: they take a request in, and answer it in time."""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from fastapi import Request

from app.engines.engine import Pair
from app.errors import ApiError, DeadlineError, UnavailableError
from app.models.registry import Models
from app.server.metrics import Metrics
from app.server.rate_limit import Clients
from app.settings import Settings

Answer = TypeVar("Answer")

JSON = "application/json"

LONGER = 2
"""How many times as long as a text may be its translation may be."""

GONE = 499
"""The status in the log of a request whose client has hung up."""


class Desk:
    """The models, and what a request must pass before it gets to one."""

    def __init__(self, settings: Settings, models: Models, metrics: Metrics) -> None:
        self.settings = settings
        self.models = models
        self.clients = Clients(settings)
        self.closing = False
        self._metrics = metrics

    @property
    def ready(self) -> bool:
        """Whether requests are taken."""
        return self.models.ready and not self.closing

    def check(self, request: Request) -> None:
        """Raises where a request is not JSON or shows no key.

        A page of another site can send forms and plain text without being asked whether it may,
        JSON it cannot.
        """
        self.clients.check(request)
        kind = request.headers.get("content-type", "").partition(";")[0]
        if request.method == "POST" and kind.strip().lower() != JSON:
            raise ApiError(415, "unsupported_media_type", f"send {JSON}")

    def accept(self, request: Request, texts: Sequence[str], key: str | None = None) -> None:
        """Takes texts in, or raises why not."""
        characters = self._count(request, texts)
        _check_length("text", characters, self.settings.max_chars)
        if len(texts) > self.settings.max_texts:
            raise ApiError(
                422, "too_many", f"text: {len(texts)} texts, {self.settings.max_texts} are allowed"
            )
        self._charge(request, characters, key)

    def accept_pair(self, request: Request, pair: Pair) -> None:
        """Takes a text with its translation in, or raises why not."""
        characters = self._count(request, pair)
        _check_length("text", len(pair.text), self.settings.max_chars)
        _check_length("translation", len(pair.translation), LONGER * self.settings.max_chars)
        self._charge(request, characters)

    def _count(self, request: Request, texts: Sequence[str]) -> int:
        """The characters of what comes in, noted for the log; raises where nothing is to."""
        if self.closing:
            raise UnavailableError("the server is going down")
        characters = sum(map(len, texts))
        request.state.sizes = {"texts": len(texts), "characters": characters}
        return characters

    def _charge(self, request: Request, characters: int, key: str | None = None) -> None:
        self.clients.charge(request, characters, key)
        self._metrics.characters(characters)

    async def answer(self, request: Request, work: Awaitable[Answer]) -> Answer:
        """The result of the work, which ends when it takes too long or the client hangs up."""
        working = asyncio.ensure_future(work)
        leaving = asyncio.ensure_future(_gone(request))
        try:
            await asyncio.wait(
                {working, leaving}, timeout=self.settings.deadline,
                return_when=asyncio.FIRST_COMPLETED,
            )  # fmt: skip
            if working.done():
                return working.result()
            raise ApiError(GONE, "gone", "the client has gone") if leaving.done() else DeadlineError
        finally:
            working.cancel()
            leaving.cancel()


def _check_length(name: str, characters: int, most: int) -> None:
    if characters > most:
        raise ApiError(422, "too_long", f"{name}: {characters} characters, {most} are allowed")


async def _gone(request: Request) -> None:
    """Returns when the client has hung up."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
