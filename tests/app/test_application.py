"""Unexpected errors and slow request bodies."""

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
from app.models.registry import ModelRegistry
from app.server import middleware
from app.server.application import create
from app.server.metrics import Metrics
from app.server.middleware import RequestMiddleware
from app.server.request_guard import RequestGuard
from app.settings import Settings
from tests.app.fake_engine import FakeEngine

SECRET = "Xylophonquark"
PATH = "/api/v1/translate"
JSON = {"Content-Type": "application/json"}


class BuggyEngine(FakeEngine):
    """Raises an unexpected exception after the warm-up."""

    warm = False

    async def call(self, signature: str, columns: Columns) -> dict[str, list[Any]]:
        if self.warm:
            raise ZeroDivisionError(SECRET)
        return await super().call(signature, columns)


def run(scenario: Callable[[RequestMiddleware], Awaitable[None]]) -> None:
    async def start() -> None:
        engine = BuggyEngine()
        models = ModelRegistry([Model("a", engine, 5.0, 0, Observer())])
        await models.start()
        engine.warm = True
        metrics = Metrics()
        guard = RequestGuard(Settings(models=(), backends=()), models, metrics)
        await scenario(create(guard, metrics))
        await models.close()

    asyncio.run(asyncio.wait_for(start(), 60))


def test_unexpected_error_is_hidden_from_client_and_logged_without_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(application: RequestMiddleware) -> None:
        transport = httpx.ASGITransport(application, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            response = await client.post(PATH, json={"text": SECRET})
        assert response.status_code == 500
        error = response.json()["error"]
        assert (error["code"], error["message"]) == ("internal", "internal server error")
        (line,) = [record for record in caplog.records if record.message == "failed"]
        assert line.fields["request_id"] == error["request_id"]
        assert "ZeroDivisionError at " in line.fields["error"]
        assert all(SECRET not in str(record.__dict__) for record in caplog.records)

    with caplog.at_level(logging.INFO, "app"):
        run(scenario)


def test_incomplete_body_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "BODY_SECONDS", 0.05)
    sent: list[dict[str, Any]] = []
    incoming = iter([{"type": "http.request", "body": b'{"text"', "more_body": True}])

    async def receive() -> dict[str, Any]:
        for message in incoming:
            return message
        return await asyncio.Future()

    async def send(message: Any) -> None:
        sent.append(message)

    async def scenario(application: RequestMiddleware) -> None:
        headers = [(name.lower().encode(), value.encode()) for name, value in JSON.items()]
        scope = {
            "type": "http",
            "method": "POST",
            "path": PATH,
            "raw_path": PATH.encode(),
            "query_string": b"",
            "headers": headers,
            "client": ("1.2.3.4", 1),
            "root_path": "",
            "http_version": "1.1",
            "scheme": "http",
            "server": ("test", 80),
        }
        await application(scope, receive, send)

    run(scenario)
    assert sent[0]["status"] == 408
    assert json.loads(sent[1]["body"])["error"]["code"] == "timeout"
