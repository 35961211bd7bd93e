"""Who may ask, and how much."""

import hmac
import time
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Network, ip_address

from cachetools import TTLCache
from fastapi import Request

from app.errors import ApiError
from app.settings import Settings, digest

MOST_CLIENTS = 100_000
"""Clients that are remembered at a time."""

MINUTE = 60.0

IPV6_PREFIX = 64
"""Bits that tell networks apart, each of which has one owner."""


@dataclass
class Bucket:
    """What a client may still send: it fills as time goes by."""

    characters: float
    since: float


class Clients:
    """Knows the keys, and what each client has sent lately."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._keys = settings.keys
        self._rate = settings.rate
        self._clock = clock
        self._buckets: TTLCache[bytes | str, Bucket] = TTLCache(MOST_CLIENTS, MINUTE, clock)

    def check(self, request: Request, key: str | None = None) -> None:
        """Raises where keys are asked for and none of them is shown."""
        if self._keys and self._known(key or _key(request)) is None:
            message = "an API key is needed: Authorization: Bearer KEY"
            raise ApiError(401, "unauthorized", message)

    def charge(self, request: Request, characters: int, key: str | None = None) -> None:
        """Takes characters from what the client may send; raises where too few are left.

        A text longer than a minute's allowance is taken when the bucket is full. An empty one
        counts as a character, for a model may be asked about it.
        """
        if not self._rate:
            return
        client = self._known(key or _key(request)) or _address(request)
        now = self._clock()
        bucket = self._buckets.get(client) or Bucket(self._rate, now)
        filled = bucket.characters + (now - bucket.since) * self._rate / MINUTE
        left = min(self._rate, filled) - min(self._rate, max(1, characters))
        if left < 0:
            raise ApiError(
                429, "rate_limited", f"more than {self._rate} characters a minute",
                retry_after=-left * MINUTE / self._rate,
            )  # fmt: skip
        self._buckets[client] = Bucket(left, now)

    def _known(self, key: str | None) -> bytes | None:
        """The digest of a key that is one of ours; looks at all of them whichever it is."""
        shown = digest(key or "")
        matches = [known for known in self._keys if hmac.compare_digest(known, shown)]
        return matches[0] if matches else None


def _key(request: Request) -> str | None:
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    return value.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key")


def _address(request: Request) -> str:
    """The client's; of IPv6 the network, of which a single client has all addresses."""
    host = request.client.host if request.client else ""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return host
    network = IPv6Network((int(address), IPV6_PREFIX), strict=False)
    return str(address.ipv4_mapped or network)
