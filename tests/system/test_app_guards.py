"""Limits and failures of the web application: keys, rate limits, overload, shutdown, fuzzing."""

import json
import random
import re
import resource
import signal
import socket
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from app.server.protocol import MAX_CONNECTIONS
from tests.system.conftest import COMMAND, App, running_app, wait_until

PATH = "/api/v1/translate"
LONG = "word " * 60
"""A sentence that takes some time to translate."""

UNLIMITED = (
    "--parallel_streams=1",
    "--cache=0",
    "--deadline=6000",
    "--max_texts=9999",
    "--max_sentences=9999",
    "--max_chars=9999999",
)
"""Flags for large requests, to a model that runs one batch at a time."""


def sentences(count: int, name: object = "") -> list[str]:
    """Return different long sentences, because identical ones are translated once."""
    return [f"{LONG} {name} {index}" for index in range(count)]


@pytest.fixture(scope="module")
def guarded(start_app: Any, tiny_export: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An application with all checks enabled."""
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text("one-key\nanother-key\n")
    with start_app(
        f"--model=toy={tiny_export}",
        "--rate=100",
        f"--api_keys={keys}",
        "--cache=0",
        "--trusted_proxies=127.0.0.1",
        "--allow_origin=https://example.org",
    ) as running:
        running.wait(200)
        yield running


def translate(app: Any, text: str = "a", **headers: str) -> httpx.Response:
    return app.post(PATH, {"text": text}, headers=headers)


# Other sites.


def test_forms_from_other_sites_are_refused(guarded: Any) -> None:
    def post(**headers: str) -> int:
        fields = {"q": "a", "source": "en", "target": "de", "api_key": "one-key"}
        return httpx.post(
            f"{guarded.url}/translate", data=fields, headers=headers, trust_env=False, timeout=60
        ).status_code

    cross_site = {"Sec-Fetch-Site": "cross-site", "Origin": "https://stranger.example"}
    assert post(**cross_site) == 403
    allowed = cross_site | {"Origin": "https://example.org"}  # see --allow_origin in `guarded`
    assert post(**allowed) == 200
    assert post(**cross_site | {"Sec-Fetch-Site": "same-origin"}) == 200
    assert post(**cross_site | {"Sec-Fetch-Site": "same-site"}) == 403
    # To an http address of another machine, browsers send only the origin.
    assert post(Origin="https://stranger.example") == 403
    assert post(Origin="null") == 403
    assert post(Origin="http://[") == 403
    assert post(**{"Sec-Fetch-Site": "cross-site"}) == 403  # from a browser that hides the origin
    assert post(Origin=guarded.url) == 200
    assert post() == 200


@pytest.mark.parametrize("charset", ["undefined", "punycode", "utf-16"])
def test_form_with_another_charset_is_refused(app: Any, charset: str) -> None:
    field = b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\na\r\n--x--\r\n'
    for kind in ("multipart/form-data; boundary=x", "application/x-www-form-urlencoded"):
        headers = {"Content-Type": f"{kind}; charset={charset}"}
        response = httpx.post(
            f"{app.url}/translate", content=field, headers=headers, trust_env=False, timeout=60
        )
        assert response.status_code == 415
        assert "utf-8" in response.json()["error"]


def test_unknown_method_names_are_not_in_metrics_or_log(app: Any) -> None:
    response = httpx.request("XYLOPHON", f"{app.url}/livez", trust_env=False, timeout=60)
    assert response.status_code == 405
    assert "XYLOPHON" not in app.get("/metrics").text
    assert "XYLOPHON" not in app.log.read_text()


# Keys and rate limits.


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}, {"X-API-Key": "é"}])
def test_request_without_a_valid_key_is_refused(guarded: Any, headers: dict[str, str]) -> None:
    encoded = {name: value.encode() for name, value in headers.items()}
    for response in (
        guarded.post(PATH, {"text": "a"}, headers=encoded),
        guarded.post(PATH, {"nosuch": 1}, headers=encoded),
        guarded.get("/api/v1/models", headers=encoded),
        guarded.get("/metrics", headers=encoded),
    ):
        assert response.status_code == 401
        assert response.headers["WWW-Authenticate"] == "Bearer"
    error = guarded.get("/api/v1/models", headers=encoded).json()["error"]
    assert error["code"] == ("invalid_key" if headers else "unauthorized")
    assert ("not valid" in error["message"]) == bool(headers)


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer one-key"},
        {"authorization": "bearer another-key"},
        {"X-API-Key": "one-key"},
    ],
)
def test_any_valid_key_is_accepted(guarded: Any, headers: dict[str, str]) -> None:
    assert guarded.get("/api/v1/models", headers=headers).status_code == 200
    assert guarded.get("/metrics", headers=headers).status_code == 200


def test_libretranslate_key_is_read_from_the_body(guarded: Any) -> None:
    fields = {"q": "a", "source": "en", "target": "de"}

    def post(path: str, **more: str) -> httpx.Response:
        client = {"X-Forwarded-For": "192.0.2.77"}  # with a quota of its own
        return guarded.post(path, {**fields, **more}, headers=client)

    refused = post("/translate")
    assert (refused.status_code, type(refused.json()["error"])) == (400, str)
    assert post("/translate", api_key="wrong-key").status_code == 403
    assert post("/translate", api_key="another-key").status_code == 200
    assert post("/translate?api_key=another-key").status_code == 200
    assert "-key" not in guarded.log.read_text()
    assert guarded.get("/frontend/settings").json()["keyRequired"] is True


def test_log_contains_no_key(guarded: Any) -> None:
    translate(guarded, Authorization="Bearer wrong-key")
    wait_until(lambda: 401 in {event.get("status") for event in guarded.events()})
    assert "-key" not in guarded.log.read_text()


def test_rate_limit_applies_per_client(start_app: Any, tiny_export: Path) -> None:
    with start_app(f"--model={tiny_export}", "--rate=100", "--trusted_proxies=127.0.0.1") as app:
        app.wait(200)
        first = {"X-Forwarded-For": "192.0.2.1"}
        assert app.post(PATH, {"text": "a" * 80}, headers=first).status_code == 200
        refused = app.post(PATH, {"text": "a" * 80}, headers=first)
        assert refused.status_code == 429
        assert 1 <= int(refused.headers["Retry-After"]) <= 60
        assert refused.json()["error"]["code"] == "rate_limited"
        # Another client has a separate limit.
        other = {"X-Forwarded-For": "192.0.2.2"}
        assert app.post(PATH, {"text": "a" * 80}, headers=other).status_code == 200


def test_forwarded_address_of_untrusted_proxy_is_ignored(start_app: Any, tiny_export: Path) -> None:
    with start_app(f"--model={tiny_export}", "--rate=100") as app:
        app.wait(200)
        statuses = [
            app.post(
                PATH, {"text": "a" * 80}, headers={"X-Forwarded-For": f"192.0.2.{number}"}
            ).status_code
            for number in range(2)
        ]
        assert statuses == [200, 429]


def test_cors_allows_only_configured_origins(guarded: Any) -> None:
    for origin, allowed in (("https://example.org", True), ("https://example.com", False)):
        headers = {
            "Origin": origin,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "content-type",
        }
        response = httpx.options(guarded.url + PATH, headers=headers, trust_env=False)
        assert (response.headers.get("Access-Control-Allow-Origin") == origin) == allowed


# Deadline and overload.


def test_request_over_deadline_returns_504(start_app: Any, tiny_export: Path) -> None:
    with start_app(f"--model={tiny_export}", "--deadline=0.001", "--cache=0") as app:
        app.wait(200)
        response = app.post(PATH, {"text": sentences(15)})
        assert response.status_code == 504
        assert response.json()["error"]["code"] == "deadline"


def send_raw(app: Any, content: bytes) -> socket.socket:
    """Send bytes on a new connection and return it."""
    url = urlsplit(app.url)
    connection = socket.create_connection((url.hostname, url.port), timeout=60)
    connection.sendall(content)
    return connection


def request_bytes(text: str, missing: int = 0) -> bytes:
    """Return a request without its last `missing` bytes."""
    body = json.dumps({"text": text}).encode()
    head = f"POST {PATH} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    whole = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    return whole[: len(whole) - missing]


def test_requests_of_disconnected_clients_are_dropped(start_app: Any, tiny_export: Path) -> None:
    def disconnected() -> int:
        return sum(event.get("status") == 499 for event in app.events())

    with start_app(f"--model={tiny_export}", *UNLIMITED) as app, ThreadPoolExecutor(1) as pool:
        app.wait(200)
        before = rows_done(app)
        busy = pool.submit(app.post, PATH, {"text": sentences(9000)})
        wait_until(lambda: accepted_characters(app) > 0)
        for sentence in sentences(64, "dropped"):
            send_raw(app, request_bytes(sentence)).close()
        wait_until(lambda: disconnected() == 64)
        assert not busy.done()  # so the dropped requests were still in the queue
        assert busy.result().status_code == 200
        assert app.translate("another text")
        assert rows_done(app) - before == 9000 + 1


def rows_done(app: Any) -> float:
    return metric(app, 'tfnmt_app_batch_rows_sum{task="beam"}')


def accepted_characters(app: Any) -> float:
    return metric(app, "tfnmt_app_characters_total")


def metric(app: Any, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} (.+)$", app.get("/metrics").text, re.MULTILINE)
    return float(found[1]) if found else 0


def test_overload_is_refused_and_the_server_recovers(start_app: Any, tiny_export: Path) -> None:
    with start_app(
        f"--model={tiny_export}", "--deadline=2", "--cache=0", "--parallel_streams=1"
    ) as app:
        app.wait(200)
        with ThreadPoolExecutor(100) as pool:
            responses = list(
                pool.map(lambda number: app.post(PATH, {"text": sentences(15, number)}), range(300))
            )
        statuses = Counter(response.status_code for response in responses)
        assert set(statuses) <= {200, 503, 504}
        assert statuses[200]
        assert statuses[503]
        for response in responses:
            assert response.status_code != 503 or int(response.headers["Retry-After"]) >= 1
        app.wait(200)
        assert app.translate("another text")


# Shutdown and restart.


def test_shutdown_answers_accepted_requests(start_app: Any, tiny_export: Path) -> None:
    requests = [sentences(2000, name) for name in range(8)]
    with start_app(f"--model={tiny_export}", *UNLIMITED) as app:
        app.wait(200)
        with ThreadPoolExecutor(8) as pool:
            asked = [pool.submit(app.post, PATH, {"text": texts}) for texts in requests]
            wait_until(
                lambda: (
                    accepted_characters(app)
                    == sum(len(text) for texts in requests for text in texts)
                )
            )
            assert not all(one.done() for one in asked)
            app.process.send_signal(signal.SIGTERM)
            assert [one.result().status_code for one in asked] == [200] * 8
        assert app.process.wait(60) == -signal.SIGTERM
        assert "Traceback" not in app.log.read_text()


def test_second_signal_ends_the_server_at_once(start_app: Any, tiny_export: Path) -> None:
    with start_app(f"--model={tiny_export}") as app:
        app.wait(200)
        with send_raw(app, request_bytes("half a request", missing=3)):
            app.process.send_signal(signal.SIGTERM)
            with pytest.raises(subprocess.TimeoutExpired):
                app.process.wait(3)  # it waits for the rest of the request
            app.process.send_signal(signal.SIGTERM)
            assert app.process.wait(10) == -signal.SIGTERM


def test_readiness_follows_the_backend(
    start_app: Any, start_stub_server: Any, tiny_export: Path
) -> None:
    with start_stub_server(tiny_export) as (process, port):
        url = f"http://127.0.0.1:{port}/v1/models/demo"
        with start_app(f"--backend={url}", "--cache=0") as app:
            app.wait(200)
            expected = app.translate("a word")
            process.kill()
            process.wait()
            for _ in range(3):
                response = app.post(PATH, {"text": "a word"})
                assert response.status_code == 503
                assert response.headers["Retry-After"]
            app.wait(503)
            assert app.get("/livez").status_code == 200
            assert app.get("/health").status_code == 503
            with start_stub_server(tiny_export, port):
                app.wait(200)
                assert app.translate("a word") == expected


def test_application_starts_without_its_backend(start_app: Any) -> None:
    with start_app("--backend=http://127.0.0.1:9/v1/models/demo") as app:
        assert app.get("/livez").status_code == 200
        assert app.get("/readyz").status_code == 503
        assert app.get("/api/v1/models").json()["models"] == []
        assert app.post(PATH, {"text": "a"}).status_code == 503
        assert app.get("/languages").json() == []
        assert app.get("/").status_code == 200


# Fuzzing.


def test_schemathesis_finds_no_server_error(app: Any, tmp_path: Path) -> None:
    checks = (
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_schema_conformance",
    )
    command = [
        str(Path(sys.executable).with_name("schemathesis")),
        "run",
        f"{app.url}/spec",
        f"--checks={','.join(checks)}",
        "--max-examples=60",
        "--seed=1",
        "--phases=examples,coverage,fuzzing",
        "--no-color",
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=900)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


VALUES = (
    None,
    True,
    0,
    -1,
    1e308,
    10**30,
    "",
    " ",
    "\n",
    "a",
    "word. word?",
    "\u0000",
    "\ufffd",
    "\u2028",
    "😀" * 9,
    "\u202e",
    "<b>",
    "a" * 6000,
    [],
    {},
    [[]],
    ["a", "b"],
    ["a", 1],
    {"a": "b"},
    "beam",
    "greedy",
    "en",
    "de",
    "cross",
    "encoder",
    1,
    4,
    "\ud800",
)

BODIES = {
    PATH: {"text": "a word", "mode": "greedy"},
    "/api/v1/align": {"text": "a word", "translation": "ein Wort"},
    "/api/v1/attention": {"text": "a word", "translation": "ein Wort", "kind": "cross"},
    "/translate": {"q": "a word", "source": "en", "target": "de"},
}

FIELDS = ("source", "target", "mode", "alternatives", "model", "kind", "layer", "format", "nosuch")

CONTENT_TYPES = (
    *("application/json",) * 20,
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "text/plain",
    "",
    "é",
)


def fuzzed(rng: random.Random) -> tuple[str, bytes, str]:
    """Return a path, a body that may be malformed, and its content type."""
    path, document = rng.choice([*BODIES.items()])
    changed = rng.sample([*document, *FIELDS], rng.choice([0, 1, 1, 1, 2, 4]))
    document = {**document, **{field: rng.choice(VALUES) for field in changed}}
    body = json.dumps(rng.choice([document] * 19 + [rng.choice(VALUES)])).encode()
    for _ in range(rng.choice([0, 0, 0, 1, 5])):
        at = rng.randrange(len(body))
        body = body[:at] + rng.randbytes(rng.randint(0, 3)) + body[at + rng.randint(0, 3) :]
        body = body or b"{"
    return path, body, rng.choice(CONTENT_TYPES)


def test_fuzzed_bodies_are_answered(app: Any) -> None:
    rng = random.Random(1)
    requests = [fuzzed(rng) for _ in range(10_000)]

    def send(client: httpx.Client, request: tuple[str, bytes, str]) -> int:
        path, body, content_type = request
        headers = {"Content-Type": content_type.encode()}
        response = client.post(path, content=body, headers=headers)
        content = response.json()
        assert ("error" in content) == (response.status_code != 200)
        return response.status_code

    with (
        httpx.Client(base_url=app.url, trust_env=False, timeout=120) as client,
        ThreadPoolExecutor(8) as pool,
    ):
        statuses = Counter(pool.map(lambda request: send(client, request), requests))
    assert set(statuses) <= {200, 400, 404, 413, 415, 422, 429, 503}
    assert statuses[200] > 1000
    assert app.get("/readyz").status_code == 200


def test_incomplete_bodies_do_not_block_other_requests(app: Any) -> None:
    slow = [send_raw(app, request_bytes("text", missing=1)) for _ in range(20)]
    assert app.translate("text")
    for connection in slow:
        connection.close()


@pytest.mark.parametrize("sent", [b"", b"GET /livez HTTP/1.1\r\n", request_bytes("a", missing=1)])
def test_idle_connections_use_up_no_file_descriptors(tmp_path: Path, sent: bytes) -> None:
    with limited(tmp_path, "ulimit -n 256") as app, ExitStack() as idle:
        for _ in range(5):
            for _ in range(100):
                idle.enter_context(send_raw(app, sent))
            assert app.get("/livez").status_code == 200
        assert logged(app) < 1000


def logged(app: App) -> int:
    return app.log.read_text().count("\n")


def limited(folder: Path, limit: str) -> AbstractContextManager[App]:
    """Run an application with resource limits, without its backend."""
    backend = "--backend=http://127.0.0.1:9/v1/models/demo"
    return running_app(folder, "sh", "-c", f'{limit}; exec "$@"', "sh", *COMMAND, backend)


def test_soft_limit_of_open_files_is_raised(tmp_path: Path) -> None:
    with limited(tmp_path, "ulimit -S -n 256") as app:
        assert app.get("/livez").status_code == 200  # answers once the limit is raised
        soft, hard = resource.prlimit(app.process.pid, resource.RLIMIT_NOFILE)
        assert soft == min(2 * MAX_CONNECTIONS, hard) > 256
