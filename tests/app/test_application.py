"""Unexpected errors, slow or costly requests, and charges."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
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
from app.server.protocol import MAX_CONNECTIONS
from app.server.request_guard import RequestGuard
from app.settings import Settings, key_digest
from tests.app.fake_engine import FakeEngine
from tests.app.fake_server import make_guard

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


def run(scenario: Callable[[RequestMiddleware], Awaitable[None]], **settings: Any) -> None:
    async def start() -> None:
        engine = BuggyEngine()
        models = ModelRegistry([Model("a", engine, 5.0, 0, Observer())])
        await models.start()
        engine.warm = True
        metrics = Metrics()
        guard = RequestGuard(Settings(models=(), backends=(), **settings), models, metrics)
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


PART = {"type": "http.request", "body": b'{"text"', "more_body": True}


def send_messages(path: str, *messages: dict[str, Any], method: str = "POST") -> list[Any]:
    """Send messages of a request, then nothing; return the messages of the response."""
    sent: list[Any] = []
    incoming = iter(messages)

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
            "method": method,
            "path": path,
            "raw_path": path.encode(),
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
    return sent


def test_incomplete_body_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "BODY_SECONDS", 0.05)
    monkeypatch.setattr(middleware, "BODY_BYTES_PER_SECOND", 10**9)
    start, body = send_messages(PATH, PART)
    assert start["status"] == 408
    assert json.loads(body["body"])["error"]["code"] == "timeout"


def test_time_for_a_body_grows_with_its_maximum_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "BODY_SECONDS", 0.0)
    monkeypatch.setattr(middleware, "BODY_BYTES_PER_SECOND", 1)
    start, _ = send_messages(PATH, PART, {"type": "http.request", "body": b""})
    assert start["status"] == 400  # incomplete JSON


@pytest.mark.parametrize("path", [PATH, "/translate"])
def test_disconnect_before_the_end_of_the_body_is_no_error_of_the_server(path: str) -> None:
    start, *_ = send_messages(path, PART, {"type": "http.disconnect"})
    assert start["status"] == 499


def test_incomplete_body_of_get_is_no_error_of_the_server(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "app"):
        send_messages("/", PART, {"type": "http.disconnect"}, method="GET")
    assert "failed" not in [record.message for record in caplog.records]


Post = Callable[..., Awaitable[httpx.Response]]


def with_server(settings: Settings, scenario: Callable[[Post], Awaitable[None]]) -> Metrics:
    """Run a scenario that sends bodies: `await post(path, body)`. Return the metrics."""

    async def start() -> Metrics:
        guard, metrics = make_guard(settings)
        await guard.models.start()
        transport = httpx.ASGITransport(create(guard, metrics))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:

            def post(path: str, body: Any, **headers: str) -> Awaitable[httpx.Response]:
                return client.post(path, json=body, headers=headers)

            await scenario(post)
        await guard.models.close()
        return metrics

    return asyncio.run(asyncio.wait_for(start(), 60))


def local(**changes: Any) -> Settings:
    return Settings(models=(), backends=(), **changes)


LIBRETRANSLATE = "/translate"
LINES = "a\n" * 1001


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (PATH, {"text": LINES}),
        (PATH, {"text": ["a\n" * 501] * 2}),
        ("/api/v1/align", {"text": LINES, "translation": LINES}),
        (LIBRETRANSLATE, {"q": LINES, "target": "de"}),
    ],
)
def test_number_of_sentences_is_limited(path: str, body: Any) -> None:
    async def scenario(post: Post) -> None:
        response = await post(path, body)
        assert response.status_code == (400 if path == LIBRETRANSLATE else 422)
        assert "more than 1000 sentences" in response.text

    with_server(local(), scenario)


def test_short_sentences_are_charged_as_work() -> None:
    async def scenario(post: Post) -> None:
        assert (await post(PATH, {"text": "a\n" * 50})).status_code == 200
        assert (await post(PATH, {"text": "a"})).status_code == 429

    with_server(local(rate=1000), scenario)


def test_request_that_the_server_cannot_answer_costs_no_quota() -> None:
    async def start() -> None:
        guard, metrics = make_guard(local(rate=100))
        await guard.models.start()
        (model,) = guard.models
        transport = httpx.ASGITransport(create(guard, metrics))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            body = {"text": "a" * 60}
            model._engine.failing.add("serving_default")
            for _ in range(3):
                assert (await client.post(PATH, json=body)).status_code == 503
            model._engine.failing.clear()
            assert (await client.post(PATH, json=body)).status_code == 200
            assert (await client.post(PATH, json=body)).status_code == 429
        await guard.models.close()

    asyncio.run(asyncio.wait_for(start(), 60))


def test_metrics_count_sentences_found_in_the_cache() -> None:
    async def scenario(post: Post) -> None:
        for _ in range(3):
            assert (await post(PATH, {"text": "a"})).status_code == 200

    metrics = with_server(local(), scenario).page().decode()
    assert 'tfnmt_app_cache_lookups_total{result="hit"} 2.0' in metrics
    assert 'tfnmt_app_cache_lookups_total{result="miss"} 1.0' in metrics
    assert 'tfnmt_app_cache_sentences{model="fake"} 1.0' in metrics


@pytest.mark.parametrize("body", [{"text": [1] * 900}, {"text": "a", "nosuch": "b" * 900}])
def test_refused_request_is_charged_before_the_next_one_is_read(body: Any) -> None:
    async def scenario(post: Post) -> None:
        for _ in range(2):
            assert (await post(PATH, body)).status_code == 422
        refused = await post(PATH, {"text": "a"})
        assert refused.status_code == 429
        assert int(refused.headers["Retry-After"]) >= 1
        assert (await post(LIBRETRANSLATE, {"q": "a", "target": "de"})).status_code == 429

    with_server(local(rate=1000), scenario)


def test_wrong_key_is_refused_before_the_body_is_read() -> None:
    async def scenario(post: Post) -> None:
        for body in ({"text": "a"}, {"nosuch": 1}):
            assert (await post(PATH, body, **{"X-Api-Key": "guess"})).status_code == 401

    with_server(local(key_digests=frozenset({key_digest("one")})), scenario)


def test_requests_above_the_share_of_an_address_are_refused_except_health_checks() -> None:
    async def scenario(application: RequestMiddleware) -> None:
        async def get(path: str, host: str) -> httpx.Response:
            transport = httpx.ASGITransport(application, client=(host, 1))
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                return await client.get(path)

        application._active["192.0.2.1"] = MAX_CONNECTIONS
        refused = await get("/languages", "192.0.2.1")
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "2")
        assert (await get("/livez", "192.0.2.1")).status_code == 200
        assert (await get("/languages", "192.0.2.2")).status_code == 200
        assert application._active == {"192.0.2.1": MAX_CONNECTIONS}

    run(scenario)


@pytest.mark.parametrize("path", ["/translate/", "/api/v1/translate/", "/livez/", "/static"])
def test_slash_at_the_end_is_not_found(path: str) -> None:
    async def scenario(post: Post) -> None:
        response = await post(path, {}, Host="elsewhere.example")
        assert response.status_code == 404
        assert "elsewhere" not in response.text + str(response.headers)

    with_server(local(), scenario)


def test_explorer_is_served_with_a_policy_that_allows_webassembly(tmp_path: Path) -> None:
    (tmp_path / "explorer.html").write_text("<!doctype html>")

    async def scenario(application: RequestMiddleware) -> None:
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url="http://app") as client:
            models = await client.get("/api/v1/models")
            assert models.json()["explorer"]
            explorer = await client.get("/inside/explorer.html")
            assert explorer.status_code == 200
            assert "'wasm-unsafe-eval'" in explorer.headers["Content-Security-Policy"]
            page = await client.get("/")
            assert "unsafe" not in page.headers["Content-Security-Policy"]

    run(scenario, explorer=tmp_path)
