"""Connections whose clients send nothing, too little or ambiguous data, over real sockets."""

import asyncio
import re
from collections.abc import Awaitable, Callable

import pytest

from app.server import process, protocol
from app.server.process import create_server, listen
from app.settings import Settings
from tests.app.fake_server import make_guard

LOCAL = Settings(models=(), backends=(), port=0)

GET = b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"
BODY = b'{"text": "a"}'
POST = (
    b"POST /api/v1/translate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n" % len(BODY)
)


class Client:
    """Opens connections to a server and sends bytes."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writers: list[asyncio.StreamWriter] = []

    async def send(self, content: bytes, address: str = "127.0.0.1") -> asyncio.StreamReader:
        """Send bytes on a new connection, and return what the server sends."""
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self._port, local_addr=(address, 0)
        )
        self._writers.append(writer)
        writer.write(content)
        await writer.drain()
        return reader

    async def get(self) -> int:
        """Return the status of /livez on a new connection."""
        return await status(await self.send(GET))

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


async def status(reader: asyncio.StreamReader) -> int:
    line = await reader.readline()
    assert line.startswith(b"HTTP/1.1 "), line
    return int(line.split()[1])


def run(scenario: Callable[[Client], Awaitable[None]]) -> None:
    async def start() -> None:
        server = create_server(*make_guard(LOCAL))
        listener = listen(LOCAL)
        serving = asyncio.create_task(server.serve([listener]))
        while not server.started:
            await asyncio.sleep(0.01)
        client = Client(listener.getsockname()[1])
        try:
            await scenario(client)
        finally:
            client.close()
            server.should_exit = True
            await serving

    asyncio.run(asyncio.wait_for(start(), 60))


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET /livez", GET[:-2], b"\r\n\r\n", GET + GET[:-2], POST.replace(b"api", b"no") + b"{"],
    ids=["nothing", "target", "header", "line breaks", "second header", "body after response"],
)
def test_connection_without_a_complete_request_is_closed(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "IDLE_SECONDS", 0.1)

    async def scenario(client: Client) -> None:
        reader = await client.send(sent)
        await reader.read()  # ends when the server closes the connection

    run(scenario)


def test_connection_stays_open_while_a_request_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(protocol, "IDLE_SECONDS", 0.5)

    async def scenario(client: Client) -> None:
        # The body arrives late: only the time of the header is limited.
        reader = await client.send(POST)
        await asyncio.sleep(1)
        client._writers[-1].write(BODY)
        assert await status(reader) == 200

    run(scenario)


@pytest.mark.parametrize("sent", [b"", GET[:-2], POST], ids=["nothing", "header", "body"])
def test_clients_that_wait_do_not_keep_others_from_connecting(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "MAX_CONNECTIONS", 20)

    async def scenario(client: Client) -> None:
        first, *others = [await client.send(sent) for _ in range(20)]
        assert await client.get() == 200
        assert await first.read() == b""  # it waited longest
        for _ in range(50):
            await client.send(sent)
        assert await client.get() == 200
        assert [await other.read() for other in others] == [b""] * 19

    run(scenario)


def test_address_with_most_waiting_connections_loses_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "MAX_CONNECTIONS", 20)

    async def scenario(client: Client) -> None:
        polite = await client.send(GET[:-2], address="127.0.0.2")
        for _ in range(40):
            await client.send(GET[:-2])
        client._writers[0].write(b"\r\n")
        assert await status(polite) == 200

    run(scenario)


def test_content_length_with_transfer_encoding_is_refused_and_closed() -> None:
    async def scenario(client: Client) -> None:
        chunked = POST.replace(b"Content-Length", b"Transfer-Encoding: chunked\r\nContent-Length")
        reader = await client.send(chunked + b"0\r\n\r\n" + GET)
        response = await reader.read()
        assert re.findall(rb"^HTTP/1.1 (\d+)", response, re.MULTILINE) == [b"400"]
        assert b"connection: close" in response.lower()

    run(scenario)


def test_large_header_is_refused_even_if_it_arrives_at_once() -> None:
    async def scenario(client: Client) -> None:
        fields = b"a: b\r\n" * 10_000
        assert await status(await client.send(GET[:-2] + fields + b"\r\n")) == 400

    run(scenario)


@pytest.mark.parametrize(("method", "statuses"), [(b"POST", [b"400"]), (b"HEAD", [])])
def test_invalid_body_is_refused_and_the_connection_closed(
    method: bytes, statuses: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """A response to HEAD has no body, so it gets none."""

    async def scenario(client: Client) -> None:
        chunked = re.sub(rb"Content-Length: \d+", b"Transfer-Encoding: chunked", POST)
        reader = await client.send(chunked.replace(b"POST", method) + b"XX\r\n")
        response = await reader.read()
        assert re.findall(rb"^HTTP/1.1 (\d+)", response, re.MULTILINE) == statuses
        assert await client.get() == 200

    run(scenario)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
