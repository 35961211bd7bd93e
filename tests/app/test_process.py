"""Listening and shutdown of the server process."""

import asyncio
import signal
import socket
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import httpx
import pytest

from app.engines.engine import Columns
from app.errors import UserError
from app.models.batcher import Observer
from app.models.model import Model
from app.models.registry import ModelRegistry
from app.server import process
from app.server.metrics import Metrics
from app.server.process import create_server, listen
from app.server.request_guard import RequestGuard
from app.settings import Settings
from tests.app.fake_engine import FakeEngine

LOCAL = Settings(models=(), backends=(), port=0)
PATH = "/api/v1/translate"


def test_accepted_connections_have_options_of_the_listener() -> None:
    with listen(LOCAL) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000


def test_name_that_no_host_can_have_is_a_user_error() -> None:
    with pytest.raises(UserError, match="cannot listen: invalid name"):
        listen(Settings(models=(), backends=(), host="é" * 70, port=0))


def test_port_in_use_is_a_user_error() -> None:
    with listen(LOCAL) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(UserError, match=f"--port={port}"):
            listen(Settings(models=(), backends=(), port=port))


class BlockableEngine(FakeEngine):
    """Blocks calls while `released` is not set."""

    def __init__(self) -> None:
        super().__init__()
        self.released = asyncio.Event()
        self.released.set()
        self.blocked = asyncio.Event()

    async def call(self, signature: str, columns: Columns) -> dict[str, list[Any]]:
        if not self.released.is_set():
            self.blocked.set()
        await self.released.wait()
        return await super().call(signature, columns)


class RunningServer(NamedTuple):
    """A server in this process with a client."""

    client: httpx.AsyncClient
    engine: BlockableEngine
    serving: asyncio.Task[None]


def serve_until_sigterm(scenario: Callable[[RunningServer], Awaitable[None]]) -> None:
    """Serve one model during a scenario that sends SIGTERM.

    The server must re-raise the signal after its shutdown.
    """

    async def start() -> None:
        engine, metrics = BlockableEngine(), Metrics()
        models = ModelRegistry([Model("a", engine, 5.0, 0, Observer())])
        guard = RequestGuard(LOCAL, models, metrics)
        server = create_server(guard, metrics)
        listener = listen(LOCAL)
        host, port = listener.getsockname()
        serving = asyncio.create_task(server.serve([listener]))
        while not server.started:
            await asyncio.sleep(0.01)
        async with httpx.AsyncClient(base_url=f"http://{host}:{port}", trust_env=False) as client:
            await scenario(RunningServer(client, engine, serving))
        await serving

    received: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    try:
        asyncio.run(asyncio.wait_for(start(), 60))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert received == [signal.SIGTERM]


def test_readiness_fails_before_shutdown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "GRACE_SECONDS", 3600.0)

    async def scenario(running: RunningServer) -> None:
        client = running.client
        assert (await client.get("/readyz")).status_code == 200
        signal.raise_signal(signal.SIGTERM)
        assert (await client.get("/readyz")).status_code == 503
        refused = await client.post(PATH, json={"text": "a"})
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "2")
        assert (await client.get("/livez")).status_code == 200
        signal.raise_signal(signal.SIGTERM)  # ends the server at once

    serve_until_sigterm(scenario)


async def responds(client: httpx.AsyncClient) -> bool:
    try:
        return (await client.get("/livez")).status_code == 200
    except httpx.TransportError:
        return False


def test_shutdown_waits_for_accepted_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "GRACE_SECONDS", 0.0)

    async def scenario(running: RunningServer) -> None:
        running.engine.released.clear()
        request = asyncio.create_task(running.client.post(PATH, json={"text": "a"}))
        await running.engine.blocked.wait()
        signal.raise_signal(signal.SIGTERM)
        while await responds(running.client):
            pass
        await asyncio.wait({running.serving}, timeout=0.5)
        assert not running.serving.done()
        running.engine.released.set()
        assert (await request).status_code == 200

    serve_until_sigterm(scenario)
