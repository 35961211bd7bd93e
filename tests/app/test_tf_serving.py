"""What becomes of what a server behind the application answers."""

import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from app.engines.tf_serving import TFServingEngine
from app.errors import ApiError


class Scripted(ThreadingHTTPServer):
    """Answers everything with a status and a body, after a time."""

    status = 200
    content = b""
    delay = 0.0

    def handle_error(self, *_: Any) -> None:
        """A client that has gone is no news."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1/models/demo"


class Handler(BaseHTTPRequestHandler):
    server: Scripted

    def do_GET(self) -> None:
        time.sleep(self.server.delay)
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(self.server.content)))
        self.end_headers()
        self.wfile.write(self.server.content)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Scripted]:
    with Scripted(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        server.shutdown()


def ask(
    url: str, question: Callable[[TFServingEngine], Awaitable[Any]], seconds: float = 20.0
) -> Any:
    async def run() -> Any:
        engine = TFServingEngine(url, seconds)
        try:
            return await question(engine)
        finally:
            await engine.close()

    return asyncio.run(run())


def call(engine: TFServingEngine) -> Awaitable[Any]:
    return engine.call("greedy", {"text": ["a"]})


def version(engine: TFServingEngine) -> Awaitable[Any]:
    return engine.version()


@pytest.mark.parametrize("question", [call, version])
@pytest.mark.parametrize(
    ("status", "becomes"),
    [(404, 503), (429, 503), (503, 503), (504, 504), (400, 502), (500, 502), (302, 502)],
)
def test_an_error_becomes_one_of_ours(
    server: Scripted, question: Callable[..., Any], status: int, becomes: int
) -> None:
    server.status, server.content = status, b'{"error": "Xylophonquark"}'
    with pytest.raises(ApiError) as problem:
        ask(server.url, question)
    assert problem.value.status == becomes
    assert "Xylophonquark" not in problem.value.message


@pytest.mark.parametrize("question", [call, version])
@pytest.mark.parametrize("content", [b"", b"no JSON", b"[]", b"{}", b"null", b"\xff"])
def test_an_answer_that_cannot_be_used_is_told(
    server: Scripted, question: Callable[..., Any], content: bytes
) -> None:
    server.content = content
    with pytest.raises(ApiError) as problem:
        ask(server.url, question)
    assert (problem.value.status, problem.value.code) == (502, "bad_backend")


def test_a_server_that_is_slow_or_away_is_told(server: Scripted) -> None:
    server.delay = 0.5
    with pytest.raises(ApiError) as slow:
        ask(server.url, call, seconds=0.1)
    with pytest.raises(ApiError) as away:
        ask("http://127.0.0.1:9/v1/models/demo", call)
    assert (slow.value.status, away.value.status) == (504, 503)


def test_the_version_is_the_highest_that_is_loaded(server: Scripted) -> None:
    states = {"9": "AVAILABLE", "10": "AVAILABLE", "11": "LOADING"}
    found = [{"version": number, "state": state} for number, state in states.items()]
    server.content = json.dumps({"model_version_status": found}).encode()
    assert ask(server.url, version) == "10"
    server.content = json.dumps({"model_version_status": found[-1:]}).encode()
    with pytest.raises(ApiError, match="being loaded") as problem:
        ask(server.url, version)
    assert problem.value.status == 503
