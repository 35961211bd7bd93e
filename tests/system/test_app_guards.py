"""What the web application does with those who want too much, and in bad times."""

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

from app.server.process import CONNECTIONS
from tests.system.conftest import COMMAND, App, started, wait_until

PATH = "/api/v1/translate"
LONG = "word " * 60
"""A sentence that takes the model a while."""

PATIENT = ("--lanes=1", "--cache=0", "--deadline=6000", "--max_texts=9999", "--max_chars=9999999")
"""With these, much may be asked of a model that works on one batch at a time."""


def sentences(number: int, name: object = "") -> list[str]:
    """Long ones, no two alike, for what is asked twice the model is asked once."""
    return [f"{LONG} {name} {place}" for place in range(number)]


@pytest.fixture(scope="module")
def guarded(start_app: Any, tiny_export: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An application with every guard up."""
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text("one-key\nanother-key\n")
    with start_app(
        f"--model=toy={tiny_export}", "--rate=100", f"--api_keys={keys}", "--cache=0",
        "--trusted_proxies=127.0.0.1", "--allow_origin=https://example.org",
    ) as running:  # fmt: skip
        running.wait(200)
        yield running


def ask(app: Any, text: str = "a", **headers: str) -> httpx.Response:
    return app.post(PATH, {"text": text}, headers=headers)


# Other sites.


def test_a_page_of_another_site_cannot_send_forms(guarded: Any) -> None:
    def post(**headers: str) -> int:
        fields = {"q": "a", "source": "en", "target": "de", "api_key": "one-key"}
        return httpx.post(
            f"{guarded.url}/translate", data=fields, headers=headers, trust_env=False, timeout=60
        ).status_code

    stranger = {"Sec-Fetch-Site": "cross-site", "Origin": "https://stranger.example"}
    assert post(**stranger) == 403
    assert post(**stranger | {"Origin": "https://example.org"}) == 200  # which is allowed
    assert post(**stranger | {"Sec-Fetch-Site": "same-origin"}) == 200
    assert post(**stranger | {"Sec-Fetch-Site": "same-site"}) == 403
    # To an address of http that is not this machine's, browsers say the origin alone.
    assert post(Origin="https://stranger.example") == 403
    assert post(Origin="null") == 403
    assert post(Origin="http://[") == 403
    assert post(**{"Sec-Fetch-Site": "cross-site"}) == 403  # by a browser that hides the origin
    assert post(Origin=guarded.url) == 200
    assert post() == 200


@pytest.mark.parametrize("charset", ["undefined", "punycode", "utf-16"])
def test_a_form_does_not_choose_what_it_is_decoded_by(app: Any, charset: str) -> None:
    field = b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\na\r\n--x--\r\n'
    for kind in ("multipart/form-data; boundary=x", "application/x-www-form-urlencoded"):
        headers = {"Content-Type": f"{kind}; charset={charset}"}
        answer = httpx.post(
            f"{app.url}/translate", content=field, headers=headers, trust_env=False, timeout=60
        )
        assert answer.status_code == 415
        assert answer.json() == {"error": "send the form as utf-8"}


def test_the_names_of_methods_are_ours_in_metrics_and_log(app: Any) -> None:
    answer = httpx.request("XYLOPHON", f"{app.url}/livez", trust_env=False, timeout=60)
    assert answer.status_code == 405
    assert "XYLOPHON" not in app.get("/metrics").text
    assert "XYLOPHON" not in app.log.read_text()


# Keys and rates.


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}, {"X-API-Key": "é"}])
def test_without_a_key_there_is_no_answer(guarded: Any, headers: dict[str, str]) -> None:
    encoded = {name: value.encode() for name, value in headers.items()}
    for answer in (
        guarded.post(PATH, {"text": "a"}, headers=encoded),
        guarded.post(PATH, {"nosuch": 1}, headers=encoded),
        guarded.get("/api/v1/models", headers=encoded),
        guarded.get("/metrics", headers=encoded),
    ):
        assert answer.status_code == 401
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        assert answer.json()["error"]["code"] == "unauthorized"


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer one-key"},
        {"authorization": "bearer another-key"},
        {"X-API-Key": "one-key"},
    ],
)
def test_any_of_the_keys_opens(guarded: Any, headers: dict[str, str]) -> None:
    assert guarded.get("/api/v1/models", headers=headers).status_code == 200
    assert guarded.get("/metrics", headers=headers).status_code == 200


def test_libretranslates_clients_show_their_key_as_a_field(guarded: Any) -> None:
    fields = {"q": "a", "source": "en", "target": "de"}
    refused = guarded.post("/translate", fields)
    assert (refused.status_code, type(refused.json()["error"])) == (401, str)
    assert guarded.post("/translate", {**fields, "api_key": "another-key"}).status_code == 200
    assert guarded.get("/frontend/settings").json()["keyRequired"] is True


def test_no_key_is_logged(guarded: Any) -> None:
    ask(guarded, Authorization="Bearer wrong-key")
    wait_until(lambda: 401 in {event.get("status") for event in guarded.events()})
    assert "-key" not in guarded.log.read_text()


def test_a_client_has_so_many_characters_a_minute(start_app: Any, tiny_export: Path) -> None:
    with start_app(f"--model={tiny_export}", "--rate=100", "--trusted_proxies=127.0.0.1") as app:
        app.wait(200)
        first = {"X-Forwarded-For": "192.0.2.1"}
        assert app.post(PATH, {"text": "a" * 80}, headers=first).status_code == 200
        refused = app.post(PATH, {"text": "a" * 80}, headers=first)
        assert refused.status_code == 429
        assert 1 <= int(refused.headers["Retry-After"]) <= 60
        assert refused.json()["error"]["code"] == "rate_limited"
        # Another client has characters of its own.
        other = {"X-Forwarded-For": "192.0.2.2"}
        assert app.post(PATH, {"text": "a" * 80}, headers=other).status_code == 200


def test_who_is_no_trusted_proxy_speaks_for_itself_alone(start_app: Any, tiny_export: Path) -> None:
    with start_app(f"--model={tiny_export}", "--rate=100") as app:
        app.wait(200)
        statuses = [
            app.post(
                PATH, {"text": "a" * 80}, headers={"X-Forwarded-For": f"192.0.2.{number}"}
            ).status_code
            for number in range(2)
        ]
        assert statuses == [200, 429]


def test_pages_of_allowed_sites_may_ask_and_no_others(guarded: Any) -> None:
    for origin, allowed in (("https://example.org", True), ("https://example.com", False)):
        headers = {
            "Origin": origin, "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "content-type",
        }  # fmt: skip
        answer = httpx.options(guarded.url + PATH, headers=headers, trust_env=False)
        assert (answer.headers.get("Access-Control-Allow-Origin") == origin) == allowed


# Time.


def test_an_answer_that_would_come_too_late_is_refused(start_app: Any, tiny_export: Path) -> None:
    with start_app(f"--model={tiny_export}", "--deadline=0.001", "--cache=0") as app:
        app.wait(200)
        answer = app.post(PATH, {"text": sentences(15)})
        assert answer.status_code == 504
        assert answer.json()["error"]["code"] == "deadline"


def send_raw(app: Any, content: bytes) -> socket.socket:
    """A connection over which this has been sent."""
    place = urlsplit(app.url)
    connection = socket.create_connection((place.hostname, place.port), timeout=60)
    connection.sendall(content)
    return connection


def request_bytes(text: str, missing: int = 0) -> bytes:
    body = json.dumps({"text": text}).encode()
    head = f"POST {PATH} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    whole = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    return whole[: len(whole) - missing]


def test_work_for_clients_that_have_gone_is_dropped(start_app: Any, tiny_export: Path) -> None:
    def gone() -> int:
        return sum(event.get("status") == 499 for event in app.events())

    with start_app(f"--model={tiny_export}", *PATIENT) as app, ThreadPoolExecutor(1) as pool:
        app.wait(200)
        before = rows_done(app)
        busy = pool.submit(app.post, PATH, {"text": sentences(9000)})
        wait_until(lambda: taken_in(app) > 0)
        for sentence in sentences(64, "gone"):
            send_raw(app, request_bytes(sentence)).close()
        wait_until(lambda: gone() == 64)
        assert not busy.done()  # they had to wait behind it
        assert busy.result().status_code == 200
        assert app.translate("still there")
        assert rows_done(app) - before == 9000 + 1


def rows_done(app: Any) -> float:
    return metric(app, 'app_batch_rows_sum{task="beam"}')


def taken_in(app: Any) -> float:
    """Characters."""
    return metric(app, "app_characters_total")


def metric(app: Any, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} (.+)$", app.get("/metrics").text, re.MULTILINE)
    return float(found[1]) if found else 0


def test_too_much_at_once_is_refused_in_time_and_then_all_is_well(
    start_app: Any, tiny_export: Path
) -> None:
    with start_app(f"--model={tiny_export}", "--deadline=2", "--cache=0", "--lanes=1") as app:
        app.wait(200)
        with ThreadPoolExecutor(100) as pool:
            answers = list(
                pool.map(lambda number: app.post(PATH, {"text": sentences(15, number)}), range(300))
            )
        statuses = Counter(answer.status_code for answer in answers)
        assert set(statuses) <= {200, 503, 504}
        assert statuses[200]
        assert statuses[503]
        for answer in answers:
            assert answer.status_code != 503 or int(answer.headers["Retry-After"]) >= 1
        app.wait(200)
        assert app.translate("all is well")


# Ends.


def test_what_was_taken_in_is_answered_before_the_end(start_app: Any, tiny_export: Path) -> None:
    requests = [sentences(2000, name) for name in range(8)]
    with start_app(f"--model={tiny_export}", *PATIENT) as app:
        app.wait(200)
        with ThreadPoolExecutor(8) as pool:
            asked = [pool.submit(app.post, PATH, {"text": texts}) for texts in requests]
            wait_until(
                lambda: taken_in(app) == sum(len(text) for texts in requests for text in texts)
            )
            assert not all(one.done() for one in asked)
            app.process.send_signal(signal.SIGTERM)
            assert [one.result().status_code for one in asked] == [200] * 8
        assert app.process.wait(60) == -signal.SIGTERM
        assert "Traceback" not in app.log.read_text()


def test_a_second_signal_ends_it_at_once(start_app: Any, tiny_export: Path) -> None:
    with start_app(f"--model={tiny_export}") as app:
        app.wait(200)
        with send_raw(app, request_bytes("half a request", missing=3)):
            app.process.send_signal(signal.SIGTERM)
            with pytest.raises(subprocess.TimeoutExpired):
                app.process.wait(3)  # it waits for the other half
            app.process.send_signal(signal.SIGTERM)
            assert app.process.wait(10) == -signal.SIGTERM


def test_readiness_follows_the_server_behind(
    start_app: Any, start_standin: Any, tiny_export: Path
) -> None:
    with start_standin(tiny_export) as (process, port):
        url = f"http://127.0.0.1:{port}/v1/models/demo"
        with start_app(f"--backend={url}", "--cache=0") as app:
            app.wait(200)
            expected = app.translate("a word")
            process.kill()
            process.wait()
            for _ in range(3):
                answer = app.post(PATH, {"text": "a word"})
                assert answer.status_code == 503
                assert answer.headers["Retry-After"]
            app.wait(503)
            assert app.get("/livez").status_code == 200
            assert app.get("/health").status_code == 503
            with start_standin(tiny_export, port):
                app.wait(200)
                assert app.translate("a word") == expected


def test_an_application_whose_server_is_not_there_yet_starts(start_app: Any) -> None:
    with start_app("--backend=http://127.0.0.1:9/v1/models/demo") as app:
        assert app.get("/livez").status_code == 200
        assert app.get("/readyz").status_code == 503
        assert app.get("/api/v1/models").json()["models"] == []
        assert app.post(PATH, {"text": "a"}).status_code == 503
        assert app.get("/languages").json() == []
        assert app.get("/").status_code == 200


# Fuzz.


@pytest.mark.slow
def test_schemathesis_finds_no_error_of_ours(app: Any, tmp_path: Path) -> None:
    checks = "not_a_server_error,status_code_conformance,content_type_conformance"
    done = subprocess.run(
        [
            str(Path(sys.executable).with_name("schemathesis")), "run", f"{app.url}/spec",
            f"--checks={checks},response_schema_conformance", "--max-examples=60", "--seed=1",
            "--phases=examples,coverage,fuzzing", "--no-color",
        ],
        capture_output=True, text=True, cwd=tmp_path, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


VALUES = (
    None, True, 0, -1, 1e308, 10**30, "", " ", "\n", "a", "word. word?", "\u0000", "\ufffd",
    "\u2028", "😀" * 9, "\u202e", "<b>", "a" * 6000, [], {}, [[]], ["a", "b"], ["a", 1], {"a": "b"},
    "beam", "greedy", "en", "de", "cross", "encoder", 1, 4, "\ud800",
)  # fmt: skip

BODIES = {
    PATH: {"text": "a word", "mode": "greedy"},
    "/api/v1/align": {"text": "a word", "translation": "ein Wort"},
    "/api/v1/attention": {"text": "a word", "translation": "ein Wort", "kind": "cross"},
    "/translate": {"q": "a word", "source": "en", "target": "de"},
}

FIELDS = ("source", "target", "mode", "alternatives", "model", "kind", "layer", "format", "nosuch")

KINDS = ("application/json",) * 20 + (
    "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain", "", "é",
)  # fmt: skip


def fuzzed(draw: random.Random) -> tuple[str, bytes, str]:
    """An address, a body that may be broken, and its kind."""
    path, document = draw.choice([*BODIES.items()])
    changed = draw.sample([*document, *FIELDS], draw.choice([0, 1, 1, 1, 2, 4]))
    document = {**document, **{field: draw.choice(VALUES) for field in changed}}
    body = json.dumps(draw.choice([document] * 19 + [draw.choice(VALUES)])).encode()
    for _ in range(draw.choice([0, 0, 0, 1, 5])):
        at = draw.randrange(len(body))
        body = body[:at] + draw.randbytes(draw.randint(0, 3)) + body[at + draw.randint(0, 3) :]
        body = body or b"{"
    return path, body, draw.choice(KINDS)


@pytest.mark.slow
def test_ten_thousand_fuzzed_bodies_are_answered(app: Any) -> None:
    draw = random.Random(1)
    requests = [fuzzed(draw) for _ in range(10_000)]

    def send(client: httpx.Client, request: tuple[str, bytes, str]) -> int:
        path, body, kind = request
        answer = client.post(path, content=body, headers={"Content-Type": kind.encode()})
        content = answer.json()
        assert ("error" in content) == (answer.status_code != 200)
        return answer.status_code

    with (
        httpx.Client(base_url=app.url, trust_env=False, timeout=120) as client,
        ThreadPoolExecutor(8) as pool,
    ):
        statuses = Counter(pool.map(lambda request: send(client, request), requests))
    assert set(statuses) <= {200, 400, 404, 413, 415, 422, 429, 503}
    assert statuses[200] > 1000
    assert app.get("/readyz").status_code == 200


def test_a_body_that_never_ends_does_not_hold_up_others(app: Any) -> None:
    slow = [send_raw(app, request_bytes("text", missing=1)) for _ in range(20)]
    assert app.translate("text")
    for connection in slow:
        connection.close()


def test_connections_that_say_nothing_do_it_no_lasting_harm(tmp_path: Path) -> None:
    with limited(tmp_path, "ulimit -n 256") as app, ExitStack() as idle:
        for _ in range(150):
            idle.enter_context(send_raw(app, b""))
        refused = app.get("/livez")
        assert (refused.status_code, refused.text) == (503, "Service Unavailable")
        for _ in range(150):
            idle.enter_context(send_raw(app, b""))
        wait_until(lambda: logged(app) > 100)  # no file is left for the next
        idle.close()
        wait_until(lambda: app.get("/livez").status_code == 200)
        assert logged(app) < 1000


def logged(app: App) -> int:
    return app.log.read_text().count("\n")


def limited(folder: Path, limit: str) -> AbstractContextManager[App]:
    """An application that is started so, in front of a server that is not there."""
    backend = "--backend=http://127.0.0.1:9/v1/models/demo"
    return started(folder, "sh", "-c", f'{limit}; exec "$@"', "sh", *COMMAND, backend)


def test_it_may_open_a_file_for_each_connection_where_few_are_usual(tmp_path: Path) -> None:
    with limited(tmp_path, "ulimit -S -n 256") as app:
        soft, hard = resource.prlimit(app.process.pid, resource.RLIMIT_NOFILE)
        assert soft == min(2 * CONNECTIONS, hard) > 256
