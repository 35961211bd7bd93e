"""Handling of responses and errors from TensorFlow Serving."""

import asyncio
import json
import threading
import time
import timeit
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from app.engines.tf_serving import TFServingEngine
from app.errors import ApiError


class StubServer(ThreadingHTTPServer):
    """Answers every request with the same status and body, after a delay."""

    status = 200
    location = ""
    content = b""
    delay = 0.0
    requests = 0

    def handle_error(self, *_: Any) -> None:
        """Ignore clients that disconnect."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1/models/demo"


class Handler(BaseHTTPRequestHandler):
    server: StubServer

    def do_GET(self) -> None:
        self.server.requests += 1
        time.sleep(self.server.delay)
        self.send_response(self.server.status)
        if self.server.location:
            self.send_header("Location", self.server.location)
        self.send_header("Content-Length", str(len(self.server.content)))
        self.end_headers()
        self.wfile.write(self.server.content)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[StubServer]:
    with StubServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        server.shutdown()


def run(
    url: str, operation: Callable[[TFServingEngine], Awaitable[Any]], timeout: float = 20.0
) -> Any:
    async def run_and_close() -> Any:
        engine = TFServingEngine(url, timeout)
        try:
            return await operation(engine)
        finally:
            await engine.close()

    return asyncio.run(run_and_close())


def call(engine: TFServingEngine) -> Awaitable[Any]:
    return engine.call("greedy", {"text": ["a"]})


def version(engine: TFServingEngine) -> Awaitable[Any]:
    return engine.version()


@pytest.mark.parametrize("operation", [call, version])
@pytest.mark.parametrize(
    ("status", "expected"),
    [(404, 503), (429, 503), (503, 503), (504, 504), (400, 502), (500, 502), (302, 502)],
)
def test_server_error_becomes_api_error_without_details(
    server: StubServer, operation: Callable[..., Any], status: int, expected: int
) -> None:
    server.status, server.content = status, b'{"error": "Xylophonquark"}'
    with pytest.raises(ApiError) as caught:
        run(server.url, operation)
    assert caught.value.status == expected
    assert "Xylophonquark" not in caught.value.message


@pytest.mark.parametrize("operation", [call, version])
@pytest.mark.parametrize("content", [b"", b"no JSON", b"[]", b"{}", b"null", b"\xff", b"[" * 9999])
def test_invalid_response_becomes_bad_backend(
    server: StubServer, operation: Callable[..., Any], content: bytes
) -> None:
    server.content = content
    with pytest.raises(ApiError) as caught:
        run(server.url, operation)
    assert (caught.value.status, caught.value.code) == (502, "bad_backend")


def test_slow_server_is_504_and_unreachable_server_is_503(server: StubServer) -> None:
    server.delay = 0.5
    with pytest.raises(ApiError) as slow:
        run(server.url, call, timeout=0.1)
    with pytest.raises(ApiError) as unreachable:
        run("http://127.0.0.1:9/v1/models/demo", call)
    assert (slow.value.status, unreachable.value.status) == (504, 503)


@pytest.mark.parametrize("operation", [call, version])
@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirect_of_the_server_is_not_followed(
    server: StubServer, operation: Callable[..., Any], status: int
) -> None:
    server.status, server.location = status, f"{server.url}/elsewhere"
    with pytest.raises(ApiError) as caught:
        run(server.url, operation)
    assert caught.value.status == 502
    assert server.requests == 1


def test_proxy_of_the_environment_is_not_used(
    server: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    server.content = b'{"outputs": {"text": ["a"], "score": [1]}}'
    assert run(server.url, call)["text"] == ["a"]


def test_version_is_the_highest_loaded_one(server: StubServer) -> None:
    states = {"9": "AVAILABLE", "10": "AVAILABLE", "11": "LOADING"}
    versions = [{"version": number, "state": state} for number, state in states.items()]
    server.content = json.dumps({"model_version_status": versions}).encode()
    assert run(server.url, version) == "10"
    server.content = json.dumps({"model_version_status": versions[-1:]}).encode()
    with pytest.raises(ApiError, match="loading") as caught:
        run(server.url, version)
    assert caught.value.status == 503


def test_large_response_is_parsed_while_the_event_loop_runs(server: StubServer) -> None:
    # Parsing takes much longer than the 5 ms after which threads take turns.
    weights = [[[[0.015625] * 64] * 64] * 8] * 24
    server.content = json.dumps({"outputs": {"cross": weights, "text": ["a"]}}).encode()

    # Processor time of this process, because others may interrupt it.
    async def longest_pause(engine: TFServingEngine) -> float:
        longest = 0.0
        calling = asyncio.ensure_future(call(engine))
        while not calling.done():
            started = time.process_time()
            await asyncio.sleep(0)
            longest = max(longest, time.process_time() - started)
        assert (await calling)["cross"] == weights
        return longest

    parse = partial(json.loads, server.content)
    alone = min(timeit.repeat(parse, timer=time.process_time, number=1, repeat=3))
    assert any(run(server.url, longest_pause) < alone / 2 for _ in range(5))
