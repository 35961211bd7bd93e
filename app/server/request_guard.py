"""Checks that every translating route shares: API key, limits, deadline and disconnects."""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

from fastapi import Request
from pydantic_core import from_json

from app.errors import ApiError, DeadlineError, UnavailableError
from app.models.registry import ModelRegistry
from app.server.metrics import Metrics
from app.server.rate_limit import Client, RateLimiter
from app.settings import Settings

Result = TypeVar("Result")

JSON = "application/json"

MAX_TRANSLATION_RATIO = 2
"""A translation to align or a correction may be this many times as long as a text may be."""

LARGE_BODY = 2048
"""Bytes of a body above which the time to check it delays other requests noticeably."""

SENTENCE_CHARACTERS = 20
"""A sentence is charged as this many characters on average, even if it is shorter: the time to
translate a sentence has a part that does not depend on its length."""

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
        self._reading = asyncio.Lock()

    @property
    def ready(self) -> bool:
        """Whether requests are accepted."""
        return self.models.ready and not self.closing

    def check_request(self, request: Request) -> None:
        """Check the API key, the quota and the content type, before the body is read.

        Only JSON is accepted: browsers let a page of another site send forms and plain text
        without a preflight request, but not JSON.

        Raises:
            ApiError: The key is missing, no quota is left or the content type is wrong.
        """
        self.rate_limiter.check_key(request)
        self.check_quota(request)
        content_type = request.headers.get("content-type", "").partition(";")[0]
        if request.method == "POST" and content_type.strip().lower() != JSON:
            raise ApiError(415, "unsupported_media_type", f"Content-Type: must be {JSON}")

    async def read_body(self, request: Request) -> bytes:
        """Return the body. The event loop handles other requests between any two large ones."""
        body = await request.body()
        if len(body) > LARGE_BODY:
            async with self._reading:
                await asyncio.sleep(0)
        return body

    async def parse_json(self, request: Request) -> Any:
        """Parse the body, several times as fast as the standard library.

        Raises:
            ValueError: The body is not valid JSON.
        """
        return from_json(await self.read_body(request))

    def check_quota(self, request: Request) -> None:
        """Raise an ApiError if refused requests have used up the client's quota."""
        self.rate_limiter.check_debt(self.rate_limiter.client(request))

    def check_origin(self, request: Request) -> None:
        """Refuse forms that a page of another site sends.

        Browsers send such forms without a preflight request, but with the Origin header. They send
        Sec-Fetch-Site only to HTTPS addresses and to the local machine.

        Raises:
            ApiError: The page is not allowed to use the API.
        """
        headers = request.headers
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        not_a_browser = origin is None and site is None
        host = (origin or "").partition("://")[2]
        same_origin = site in ("same-origin", "none") or host == headers.get("host")
        if not (not_a_browser or same_origin or origin in self.settings.allowed_origins):
            raise ApiError(403, "forbidden", "Origin: not allowed; see --allow_origin")

    def check_texts(self, request: Request, texts: Sequence[str]) -> None:
        """Check the limits for texts to translate.

        Raises:
            ApiError: A limit is exceeded or the server is shutting down.
        """
        characters = self.record_size(request, texts)
        _check_length("text", characters, self.settings.max_chars)
        self._check_count(texts)

    def check_each_text(self, request: Request, texts: Sequence[str]) -> None:
        """Check the limits for texts whose length is limited one by one, as in LibreTranslate.

        The size of the body limits all texts together.

        Raises:
            ApiError: A limit is exceeded or the server is shutting down.
        """
        self.record_size(request, texts)
        for text in texts:
            _check_length("text", len(text), self.settings.max_chars)
        self._check_count(texts)

    def check_translations(self, request: Request, text: str, *translations: str) -> None:
        """Check the limits for a text with translations of it.

        Raises:
            ApiError: A limit is exceeded or the server is shutting down.
        """
        self.record_size(request, (text, *translations))
        max_chars = self.settings.max_chars
        _check_length("text", len(text), max_chars)
        for translation in translations:
            _check_length("translation", len(translation), MAX_TRANSLATION_RATIO * max_chars)

    def charge(self, request: Request, sentences: int, key: str | None = None) -> Client:
        """Charge the client for the checked texts of its request, and return the client.

        Args:
            request: The request.
            sentences: Number of sentences in its texts.
            key: The API key, if it is not in a header.

        Raises:
            ApiError: The client has too little quota left.
        """
        characters = request.state.sizes["characters"]
        client = self.rate_limiter.client(request, key)
        charge = max(1, characters, SENTENCE_CHARACTERS * sentences)
        self.rate_limiter.charge(client, charge)
        request.state.charge = (client, charge)
        self._metrics.characters(characters)
        return client

    def refund(self, request: Request, share: float) -> None:
        """Give a share of its charge back to the client of a request."""
        client, characters = request.state.charge
        self.rate_limiter.refund(client, round(share * characters))

    def charge_refused(self, request: Request, body_bytes: int) -> None:
        """Charge the client for a refused request: each byte of its body as a character."""
        self.rate_limiter.charge_refused(self.rate_limiter.client(request), body_bytes)

    def _check_count(self, texts: Sequence[str]) -> None:
        limit = self.settings.max_texts
        if len(texts) > limit:
            raise ApiError(422, "too_many", f"text: {len(texts)} texts; the limit is {limit}")

    def record_size(self, request: Request, texts: Sequence[str]) -> int:
        """Store the size of the request for the log and return its characters.

        Raises:
            ApiError: The server is shutting down.
        """
        if self.closing:
            raise UnavailableError("the server is shutting down")
        characters = sum(map(len, texts))
        request.state.sizes = {"texts": len(texts), "characters": characters}
        return characters

    async def run(self, request: Request, work: Awaitable[Result]) -> Result:
        """Await work for a charged request; cancel it at the deadline or if the client disconnects.

        The client gets its charge back if the server is overloaded or not ready.

        Args:
            request: The request.
            work: Computes the result.

        Raises:
            DeadlineError: The deadline has passed.
            ApiError: The client has disconnected.
        """
        working = asyncio.ensure_future(work)
        disconnecting = asyncio.ensure_future(disconnected(request))
        try:
            await asyncio.wait(
                {working, disconnecting},
                timeout=self.settings.deadline,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if working.done():
                return self._result(request, working)
            if disconnecting.done():
                raise ApiError(CLIENT_CLOSED_REQUEST, "gone", "the client has disconnected")
            raise DeadlineError
        finally:
            working.cancel()
            disconnecting.cancel()

    def _result(self, request: Request, work: "asyncio.Future[Result]") -> Result:
        try:
            return work.result()
        except ApiError as error:
            if error.status == 503:
                self.refund(request, 1)
            raise


def _check_length(name: str, characters: int, limit: int) -> None:
    if characters > limit:
        raise ApiError(422, "too_long", f"{name}: {characters} characters; the limit is {limit}")


async def disconnected(request: Request) -> None:
    """Return when the client has disconnected."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
