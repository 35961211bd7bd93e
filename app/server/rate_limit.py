"""API keys, and a limit on the work that each client sends."""

import hmac
import time
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Network, ip_address

from cachetools import TLRUCache, TTLCache
from fastapi import Request

from app.errors import ApiError
from app.settings import Settings, key_digest

MAX_CLIENTS = 100_000
"""Number of clients with a bucket. The least recently used buckets are dropped."""

MAX_WRONG_KEYS = 20
"""Different wrong keys per address and minute. One wrong key, sent again and again, counts once:
a script with an old key does not lock out the other clients of its address."""

MINUTE = 60.0

IPV6_PREFIX = 64
"""Bits of an IPv6 address that identify a client: a /64 network has one owner."""

Client = bytes | str
"""The digest of an API key, an IPv4 address or an IPv6 network."""


@dataclass
class TokenBucket:
    """Characters that a client may still send; negative for a debt.

    The bucket refills at the rate limit.
    """

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
        self._buckets: TLRUCache[Client, TokenBucket] = TLRUCache(
            MAX_CLIENTS, lambda _, bucket, now: now + self._seconds_until_full(bucket), clock
        )
        self._wrong_keys: TTLCache[str, frozenset[bytes]] = TTLCache(MAX_CLIENTS, MINUTE, clock)

    def client(self, request: Request, key: str | None = None) -> Client:
        """Return the client of a request: its valid key or its address.

        Args:
            request: The request, whose headers may contain the key.
            key: The key, if it is not in a header.
        """
        return self._valid_digest(key or _header_key(request)) or client_address(request)

    def check_key(self, request: Request, key: str | None = None) -> None:
        """Raise an ApiError if keys are required and the request has no valid one.

        Args:
            request: The request, whose headers may contain the key.
            key: The key, if it is not in a header.
        """
        if not self._key_digests:
            return
        key = key or _header_key(request)
        address = client_address(request)
        wrong_keys = self._wrong_keys.get(address, frozenset())
        if key and len(wrong_keys) >= MAX_WRONG_KEYS:
            message = "too many wrong API keys from this address; try again later"
            raise ApiError(429, "rate_limited", message, retry_after=MINUTE)
        if self._valid_digest(key) is None:
            if key:
                self._wrong_keys[address] = wrong_keys | {key_digest(key)}
                raise ApiError(401, "invalid_key", "the API key is not valid; check it")
            message = "an API key is required; send the header Authorization: Bearer KEY"
            raise ApiError(401, "unauthorized", message)

    def check_debt(self, client: Client) -> None:
        """Raise an ApiError if a long text or refused requests left the client in debt."""
        if self._rate:
            self._check_left(self._characters_left(client))

    def charge(self, client: Client, characters: int) -> None:
        """Subtract characters from the client's bucket.

        A text longer than a minute's limit is accepted if the bucket is full, and leaves the client
        in debt. An empty text counts as one character, because it may still cause a call of the
        model.

        Raises:
            ApiError: Too few characters are left.
        """
        if self._rate:
            characters = max(1, characters)
            left = self._characters_left(client)
            self._check_left(left - min(self._rate, characters))
            self._keep(client, left - characters)

    def refund(self, client: Client, characters: int) -> None:
        """Add the characters of a charged request that the server could not answer."""
        if self._rate:
            left = self._characters_left(client) + characters
            self._keep(client, min(self._rate, left))

    def charge_refused(self, client: Client, characters: int) -> None:
        """Subtract characters of a refused request, which may leave the client in debt.

        A request counts as at most a minute's limit, and so does the debt of refused requests.
        """
        if self._rate:
            left = self._characters_left(client)
            charged = min(self._rate, max(1, characters))
            self._keep(client, min(left, max(-self._rate, left - charged)))

    def _characters_left(self, client: Client) -> float:
        now = self._clock()
        bucket = self._buckets.get(client) or TokenBucket(self._rate, now)
        refilled = bucket.characters + (now - bucket.updated_at) * self._rate / MINUTE
        return min(self._rate, refilled)

    def _keep(self, client: Client, characters: float) -> None:
        if characters < self._rate:
            self._buckets[client] = TokenBucket(characters, self._clock())
        else:  # the same as a full bucket
            self._buckets.pop(client, None)

    def _seconds_until_full(self, bucket: TokenBucket) -> float:
        return (self._rate - bucket.characters) * MINUTE / self._rate

    def _check_left(self, characters: float) -> None:
        if characters < 0:
            raise ApiError(
                429,
                "rate_limited",
                f"the limit is {self._rate} characters per minute; try again later",
                retry_after=-characters * MINUTE / self._rate,
            )

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


def client_address(request: Request) -> str:
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
