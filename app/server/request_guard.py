"""Checks that every translating route shares: API key, limits, deadline and disconnects."""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from fastapi import Request

from app.engines.engine import Pair
from app.errors import ApiError, DeadlineError, UnavailableError
from app.models.registry import ModelRegistry
from app.server.metrics import Metrics
from app.server.rate_limit import RateLimiter
from app.settings import Settings

Result = TypeVar("Result")

JSON = "application/json"

MAX_TRANSLATION_RATIO = 2
"""A translation to align may be this many times as long as a text may be."""

CLIENT_CLOSED_REQUEST = 499
"""Status in the log when the client disconnects before the response; nginx uses it as well."""


class RequestGuard:
    """Checks requests before they reach a model, and limits the time to answer them."""

    def __init__(self, settings: Settings, models: ModelRegistry, metrics: Metrics) -> None:
        self.settings = settings
        self.models = models
        self.rate_limiter = RateLimiter(settings)
        self.closing = False
        """Set to True at shutdown: new requests are refused."""
        self._metrics = metrics

    @property
    def ready(self) -> bool:
        """Whether requests are accepted."""
        return self.models.ready and not self.closing

    def check_request(self, request: Request) -> None:
        """Check the API key and the content type.

        Only JSON is accepted: browsers let a page of another site send forms and plain text
        without a preflight request, but not JSON.

        Raises:
            ApiError: The key is missing or the content type is wrong.
        """
        self.rate_limiter.check_key(request)
        content_type = request.headers.get("content-type", "").partition(";")[0]
        if request.method == "POST" and content_type.strip().lower() != JSON:
            raise ApiError(415, "unsupported_media_type", f"Content-Type: must be {JSON}")

    def accept_texts(self, request: Request, texts: Sequence[str], key: str | None = None) -> None:
        """Check the limits for texts to translate and charge the client.

        Args:
            request: The request.
            texts: Its texts.
            key: The API key, if it is not in a header.

        Raises:
            ApiError: A limit is exceeded or the server is shutting down.
        """
        characters = self._record_size(request, texts)
        _check_length("text", characters, self.settings.max_chars)
        limit = self.settings.max_texts
        if len(texts) > limit:
            raise ApiError(422, "too_many", f"text: {len(texts)} texts; the limit is {limit}")
        self._charge(request, characters, key)

    def accept_pair(self, request: Request, pair: Pair) -> None:
        """Check the limits for a text with its translation and charge the client.

        Raises:
            ApiError: A limit is exceeded or the server is shutting down.
        """
        characters = self._record_size(request, pair)
        max_chars = self.settings.max_chars
        _check_length("text", len(pair.text), max_chars)
        _check_length("translation", len(pair.translation), MAX_TRANSLATION_RATIO * max_chars)
        self._charge(request, characters)

    def _record_size(self, request: Request, texts: Sequence[str]) -> int:
        """Store the size of the request for the log and return its characters."""
        if self.closing:
            raise UnavailableError("the server is shutting down")
        characters = sum(map(len, texts))
        request.state.sizes = {"texts": len(texts), "characters": characters}
        return characters

    def _charge(self, request: Request, characters: int, key: str | None = None) -> None:
        self.rate_limiter.charge(request, characters, key)
        self._metrics.characters(characters)

    async def run(self, request: Request, work: Awaitable[Result]) -> Result:
        """Await work for a request; cancel it at the deadline or when the client disconnects.

        Args:
            request: The request.
            work: Computes the result.

        Raises:
            DeadlineError: The deadline has passed.
            ApiError: The client has disconnected.
        """
        working = asyncio.ensure_future(work)
        disconnecting = asyncio.ensure_future(_disconnected(request))
        try:
            await asyncio.wait(
                {working, disconnecting},
                timeout=self.settings.deadline,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if working.done():
                return working.result()
            if disconnecting.done():
                raise ApiError(CLIENT_CLOSED_REQUEST, "gone", "the client has disconnected")
            raise DeadlineError
        finally:
            working.cancel()
            disconnecting.cancel()


def _check_length(name: str, characters: int, limit: int) -> None:
    if characters > limit:
        raise ApiError(422, "too_long", f"{name}: {characters} characters; the limit is {limit}")


async def _disconnected(request: Request) -> None:
    """Return when the client has disconnected."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
