"""API keys, and a limit on the characters that each client sends."""

import hmac
import time
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Network, ip_address

from cachetools import TTLCache
from fastapi import Request

from app.errors import ApiError
from app.settings import Settings, key_digest

MAX_CLIENTS = 100_000
"""Number of clients with a bucket. The least recently used buckets are dropped."""

MINUTE = 60.0

IPV6_PREFIX = 64
"""Bits of an IPv6 address that identify a client: a /64 network has one owner."""


@dataclass
class TokenBucket:
    """Characters that a client may still send. The bucket refills at the rate limit."""

    characters: float
    updated_at: float


class RateLimiter:
    """Checks API keys and applies a token bucket per client.

    A client is an API key, or without a key an IPv4 address or an IPv6 network.
    """

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._key_digests = settings.key_digests
        self._rate = settings.rate
        self._clock = clock
        self._buckets: TTLCache[bytes | str, TokenBucket] = TTLCache(MAX_CLIENTS, MINUTE, clock)

    def check_key(self, request: Request, key: str | None = None) -> None:
        """Raise an ApiError if keys are required and the request has no valid one.

        Args:
            request: The request, whose headers may contain the key.
            key: The key, if it is not in a header.
        """
        if self._key_digests and self._valid_digest(key or _header_key(request)) is None:
            message = "an API key is required: Authorization: Bearer KEY"
            raise ApiError(401, "unauthorized", message)

    def charge(self, request: Request, characters: int, key: str | None = None) -> None:
        """Subtract characters from the client's bucket.

        A text longer than a minute's limit is accepted if the bucket is full. An empty text counts
        as one character, because it may still cause a call of the model.

        Args:
            request: The request, whose headers or address identify the client.
            characters: Number of characters.
            key: The API key, if it is not in a header.

        Raises:
            ApiError: Too few characters are left.
        """
        if not self._rate:
            return
        client = self._valid_digest(key or _header_key(request)) or _address(request)
        now = self._clock()
        bucket = self._buckets.get(client) or TokenBucket(self._rate, now)
        refilled = bucket.characters + (now - bucket.updated_at) * self._rate / MINUTE
        left = min(self._rate, refilled) - min(self._rate, max(1, characters))
        if left < 0:
            raise ApiError(
                429,
                "rate_limited",
                f"the limit is {self._rate} characters per minute; try again later",
                retry_after=-left * MINUTE / self._rate,
            )
        self._buckets[client] = TokenBucket(left, now)

    def _valid_digest(self, key: str | None) -> bytes | None:
        """Return the digest of a valid key, else None.

        The key is compared with all valid keys, so that the time does not reveal which one it is.
        """
        digest = key_digest(key or "")
        matches = [valid for valid in self._key_digests if hmac.compare_digest(valid, digest)]
        return matches[0] if matches else None


def _header_key(request: Request) -> str | None:
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    return value.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key")


def _address(request: Request) -> str:
    """Return the client's address, or its network for IPv6, where a client owns a whole /64."""
    host = request.client.host if request.client else ""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return host
    network = IPv6Network((int(address), IPV6_PREFIX), strict=False)
    return str(address.ipv4_mapped or network)
