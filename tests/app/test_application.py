"""What a client is told when something goes wrong that should not."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from app.engines.engine import Columns
from app.models.batcher import Observer
from app.models.model import Model
from app.models.registry import Models
from app.server import middleware
from app.server.application import create
from app.server.metrics import Metrics
from app.server.middleware import Gate
from app.server.request_guard import Desk
from app.settings import Settings
from tests.app.fake_engine import ToldEngine

SECRET = "Xylophonquark"
PATH = "/api/v1/translate"
JSON = {"Content-Type": "application/json"}


class BrokenEngine(ToldEngine):
    """Has a fault that nobody thought of, once it is warm."""

    warm = False

    async def call(self, signature: str, columns: Columns) -> dict[str, list[Any]]:
        if self.warm:
            raise ZeroDivisionError(SECRET)
        return await super().call(signature, columns)


def run(scenario: Callable[[Gate], Awaitable[None]]) -> None:
    async def begin() -> None:
        engine = BrokenEngine()
        models = Models([Model("a", engine, 5.0, 0, Observer())])
        await models.start()
        engine.warm = True
        metrics = Metrics()
        await scenario(create(Desk(Settings(models=(), backends=()), models, metrics), metrics))
        await models.close()

    asyncio.run(asyncio.wait_for(begin(), 60))


def test_a_fault_is_told_without_what_it_is_and_logged_without_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(application: Gate) -> None:
        transport = httpx.ASGITransport(application, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            answer = await client.post(PATH, json={"text": SECRET})
        assert answer.status_code == 500
        error = answer.json()["error"]
        assert (error["code"], error["message"]) == ("internal", "something went wrong")
        (line,) = [record for record in caplog.records if record.message == "failed"]
        assert line.fields["request_id"] == error["request_id"]
        assert "ZeroDivisionError at " in line.fields["error"]
        assert all(SECRET not in str(record.__dict__) for record in caplog.records)

    with caplog.at_level(logging.INFO, "app"):
        run(scenario)


def test_a_body_that_does_not_arrive_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "BODY_SECONDS", 0.05)
    sent: list[dict[str, Any]] = []
    arriving = iter([{"type": "http.request", "body": b'{"text"', "more_body": True}])

    async def receive() -> dict[str, Any]:
        for message in arriving:
            return message
        return await asyncio.Future()

    async def send(message: Any) -> None:
        sent.append(message)

    async def scenario(application: Gate) -> None:
        headers = [(name.lower().encode(), value.encode()) for name, value in JSON.items()]
        scope = {
            "type": "http", "method": "POST", "path": PATH, "raw_path": PATH.encode(),
            "query_string": b"", "headers": headers, "client": ("1.2.3.4", 1), "root_path": "",
            "http_version": "1.1", "scheme": "http", "server": ("test", 80),
        }  # fmt: skip
        await application(scope, receive, send)

    run(scenario)
    assert sent[0]["status"] == 408
    assert json.loads(sent[1]["body"])["error"]["code"] == "timeout"
