"""The protocol of a connection: uvicorn's HTTP/1.1, with limits for clients that do not send."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 2000
"""Maximum open connections, and maximum requests at the same time."""

IDLE_SECONDS = 15
"""Maximum time for the header of a request, from the start of the connection or from the previous
response."""

PART_BYTES = 8192
"""Bytes of data to process at once."""


class WaitingConnections:
    """Connections that wait for their client, by address and by the time that they wait.

    If there are too many connections, the one that waits longest is closed, of the address with
    the most: clients that send nothing cannot keep others from connecting.
    """

    def __init__(self, limit: int) -> None:
        """Create an empty collection.

        Args:
            limit: Maximum number of connections, including those that do not wait.
        """
        self.limit = limit
        self._by_address: dict[str, dict[asyncio.Transport, None]] = {}

    def add(self, address: str, connection: asyncio.Transport) -> None:
        """Add a connection, unless it is known to wait."""
        self._by_address.setdefault(address, {}).setdefault(connection)

    def discard(self, address: str, connection: asyncio.Transport) -> None:
        """Remove a connection, if it waits."""
        connections = self._by_address.get(address, {})
        connections.pop(connection, None)
        if not connections:
            self._by_address.pop(address, None)

    def close_one(self) -> None:
        """Close a connection, if any waits."""
        if not self._by_address:
            return
        address = max(self._by_address, key=lambda address: len(self._by_address[address]))
        connection = next(iter(self._by_address[address]))
        self.discard(address, connection)
        connection.abort()


class Protocol(H11Protocol):
    """Closes a connection on which no request arrives in time."""

    def __init__(self, *args: Any, waiting: WaitingConnections, **options: Any) -> None:
        """Create the protocol of one connection.

        Args:
            *args: Arguments of uvicorn's protocol.
            waiting: The connections of the server that wait for their client.
            **options: More arguments of uvicorn's protocol.
        """
        super().__init__(*args, **options)
        self._waiting = waiting
        self._idle_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Make room for the connection and wait for its first request."""
        super().connection_made(transport)
        if len(self.connections) > self._waiting.limit:
            self._waiting.close_one()
        self._update()

    def data_received(self, data: bytes) -> None:
        """Process data; the connection may wait for more.

        h11 limits the size of a header only if it arrives in parts.
        """
        for start in range(0, len(data), PART_BYTES):
            if not self.transport.is_closing():
                super().data_received(data[start : start + PART_BYTES])
        self._update()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._update()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        super().connection_lost(exc)
        self._stop_timer()
        self._waiting.discard(self._address, self.transport)

    def send_400_response(self, msg: str) -> None:
        """Refuse invalid data; just close the connection if a response is being sent."""
        if self.cycle is not None and not self.cycle.response_complete:
            if self.cycle.response_started or self.cycle.scope["method"] == "HEAD":
                self.transport.close()
                return
            self.cycle.disconnected = True  # so that the application sends no second response
            self.cycle.message_event.set()
        super().send_400_response(msg)

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else ""

    def _update(self) -> None:
        """Record whether the connection waits for its client, and limit the time of a header."""
        idle = self.cycle is None or self.cycle.response_complete
        if idle or self.cycle.more_body:
            self._waiting.add(self._address, self.transport)
        else:
            self._waiting.discard(self._address, self.transport)
        if not idle:
            self._stop_timer()
        elif self._idle_timer is None:
            self._idle_timer = self.loop.call_later(IDLE_SECONDS, self.transport.close)

    def _stop_timer(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
