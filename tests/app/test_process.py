"""How the process listens, and how it ends."""

import asyncio
import signal
import socket
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import httpx
import pytest
import uvicorn

from app.engines.engine import Columns
from app.errors import UserError
from app.models.batcher import Observer
from app.models.model import Model
from app.models.registry import Models
from app.server import process
from app.server.application import create
from app.server.metrics import Metrics
from app.server.process import Server, listen
from app.server.request_guard import Desk
from app.settings import Settings
from tests.app.fake_engine import ToldEngine

LOCAL = Settings(models=(), backends=(), port=0)
PATH = "/api/v1/translate"


def test_a_connection_sends_its_answer_at_once() -> None:
    with listen(LOCAL) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_port_that_is_taken_is_told() -> None:
    with listen(LOCAL) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(UserError, match=f"--port={port}"):
            listen(Settings(models=(), backends=(), port=port))


class HeldEngine(ToldEngine):
    """Translates nothing, once it is held, until it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.free = asyncio.Event()
        self.free.set()
        self.held = asyncio.Event()

    async def call(self, signature: str, columns: Columns) -> dict[str, list[Any]]:
        if not self.free.is_set():
            self.held.set()
        await self.free.wait()
        return await super().call(signature, columns)


class Running(NamedTuple):
    """A server in this process, and who speaks to it."""

    client: httpx.AsyncClient
    engine: HeldEngine
    serving: asyncio.Task[None]


def serve_and_end(scenario: Callable[[Running], Awaitable[None]]) -> None:
    """Serves one model, for a scenario that ends it by SIGTERM; which must then be passed on."""

    async def begin() -> None:
        engine, metrics = HeldEngine(), Metrics()
        desk = Desk(LOCAL, Models([Model("a", engine, 5.0, 0, Observer())]), metrics)
        server = Server(uvicorn.Config(create(desk, metrics), log_config=None), desk)
        listener = listen(LOCAL)
        host, port = listener.getsockname()
        serving = asyncio.create_task(server.serve([listener]))
        while not server.started:
            await asyncio.sleep(0.01)
        async with httpx.AsyncClient(base_url=f"http://{host}:{port}", trust_env=False) as client:
            await scenario(Running(client, engine, serving))
        await serving

    came: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    try:
        asyncio.run(asyncio.wait_for(begin(), 60))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert came == [signal.SIGTERM]


def test_an_end_is_announced_before_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "GRACE", 3600.0)

    async def scenario(running: Running) -> None:
        client = running.client
        assert (await client.get("/readyz")).status_code == 200
        signal.raise_signal(signal.SIGTERM)
        assert (await client.get("/readyz")).status_code == 503
        refused = await client.post(PATH, json={"text": "a"})
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "2")
        assert (await client.get("/livez")).status_code == 200
        signal.raise_signal(signal.SIGTERM)  # at once

    serve_and_end(scenario)


async def answers(client: httpx.AsyncClient) -> bool:
    try:
        return (await client.get("/livez")).status_code == 200
    except httpx.TransportError:
        return False


def test_what_was_taken_in_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "GRACE", 0.0)

    async def scenario(running: Running) -> None:
        running.engine.free.clear()
        asked = asyncio.create_task(running.client.post(PATH, json={"text": "a"}))
        await running.engine.held.wait()
        signal.raise_signal(signal.SIGTERM)
        while await answers(running.client):
            pass
        await asyncio.wait({running.serving}, timeout=0.5)
        assert not running.serving.done()
        running.engine.free.set()
        assert (await asked).status_code == 200

    serve_and_end(scenario)
