"""The HTTP API over real sockets, with a model in the process or behind a stub server."""

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import pytest

import tfnmt
from app.engines.in_process import NICENESS
from tests.system.conftest import running_app, wait_until
from tfnmt.data.corpora.toy import grammar
from tfnmt.loading.registry import DEFAULT_MODEL

SENTENCES = [source for source, _ in islice(grammar.pairs("test"), 24)]
SECRET = "Xylophonquark"
"""A word that no error response and no log may contain."""


@pytest.fixture(scope="module")
def proxied_app(start_app: Any, start_stub_server: Any, tiny_export: Path) -> Iterator[Any]:
    """An application in front of a stub of TensorFlow Serving."""
    with (
        start_stub_server(tiny_export) as (_, port),
        start_app(f"--backend=toy=http://127.0.0.1:{port}/v1/models/demo", "--cache=0") as running,
    ):
        running.wait(200)
        yield running


@pytest.fixture(scope="module")
def litert_app(start_app: Any, tiny_litert: Path) -> Iterator[Any]:
    """An application with a LiteRT model in its process."""
    with start_app(f"--model=toy={tiny_litert}", "--cache=0") as running:
        running.wait(200)
        yield running


@pytest.fixture(params=["app", "proxied_app", "litert_app"])
def any_app(request: pytest.FixtureRequest) -> Any:
    """An application with a SavedModel or a LiteRT file in its process, and one with a backend."""
    return request.getfixturevalue(request.param)


def test_serve_without_flags_serves_the_model_of_tfnmt(tmp_path: Path) -> None:
    with running_app(tmp_path, sys.executable, "-m", "tfnmt", "serve", "--port=0") as app:
        app.wait(200)
        languages = app.get("/languages").json()
        assert {each["code"] for each in languages} == {"en", "de", "fr", "es"}
        (translation,) = app.translate(SENTENCES[0], source="en", target="fr")
    (expected,) = tfnmt.load(DEFAULT_MODEL).translate([SENTENCES[0]], target="fr")
    assert translation["text"] == expected.text


# Translation.


def test_translate_accepts_a_text_or_a_list(any_app: Any) -> None:
    (translation,) = any_app.translate(SENTENCES[0])
    assert set(translation) == {"text", "score", "truncated", "alternatives"}
    assert translation["alternatives"] == []
    assert len(any_app.translate(SENTENCES[:3])) == 3


def test_response_contains_model_and_request_id(any_app: Any) -> None:
    response = any_app.post("/api/v1/translate", {"text": SENTENCES[0]})
    body = response.json()
    assert set(body) == {"translations", "model", "took_ms", "request_id"}
    assert body["model"] == {"name": "toy", "version": "1"}
    assert body["request_id"] == response.headers["X-Request-Id"]
    assert body["took_ms"] >= 0


@pytest.mark.parametrize("other_app", ["proxied_app", "litert_app"])
def test_engines_give_the_same_translations(
    app: Any, request: pytest.FixtureRequest, other_app: str
) -> None:
    compared = request.getfixturevalue(other_app)
    for mode in ("beam", "greedy"):
        local = app.translate(SENTENCES[:6], mode=mode)
        remote = compared.translate(SENTENCES[:6], mode=mode)
        assert [item["text"] for item in local] == [item["text"] for item in remote]
        for one, other in zip(local, remote, strict=True):
            assert math.isclose(one["score"], other["score"], abs_tol=1e-3)


def test_app_with_litert_does_not_load_tensorflow(app: Any, litert_app: Any) -> None:
    litert_app.translate(SENTENCES)
    mapped = [Path(f"/proc/{each.process.pid}/maps").read_text() for each in (app, litert_app)]
    assert ["/tensorflow/" in text for text in mapped] == [True, False]


def test_app_refuses_a_damaged_litert_file(tiny_litert: Path, tmp_path: Path) -> None:
    graphs = Path(shutil.copytree(tiny_litert, tmp_path / "1")) / "model.tflite"
    graphs.write_bytes(graphs.read_bytes()[:1000])
    command = [sys.executable, "-m", "app", f"--model={tmp_path}", "--port=0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    (problem,) = done.stderr.splitlines()
    assert f"{graphs}: " in problem


def test_translation_keeps_line_breaks_and_white_space(any_app: Any) -> None:
    first, second = SENTENCES[:2]
    separate = [item["text"] for item in any_app.translate([first, second])]
    (whole,) = any_app.translate(f"\t{first}\r\n\n  {second}   \n")
    assert whole["text"] == f"\t{separate[0]}\r\n\n  {separate[1]}   \n"


@pytest.mark.parametrize("text", ["", " ", "\n\n", "\u00a0"])
def test_blank_text_is_returned_unchanged(app: Any, text: str) -> None:
    assert app.translate(text) == [
        {"text": text, "score": 0.0, "truncated": False, "alternatives": []}
    ]


@pytest.mark.parametrize("count", [1, 3, 4])
def test_alternatives_are_limited_and_sorted_by_score(any_app: Any, count: int) -> None:
    translations = any_app.translate(SENTENCES[:8], alternatives=count)
    most = max(len(translation["alternatives"]) for translation in translations)
    assert 1 <= most <= count
    for translation, best in zip(translations, any_app.translate(SENTENCES[:8]), strict=True):
        scores = [translation["score"], *(other["score"] for other in translation["alternatives"])]
        assert scores == sorted(scores, reverse=True)
        assert translation["text"] == best["text"]


def test_truncated_text_is_reported(app: Any) -> None:
    long, short = app.translate(["word " * 200, "word"], mode="greedy")
    assert (long["truncated"], short["truncated"]) == (True, False)


def test_concurrent_requests_get_the_same_translations(app: Any) -> None:
    sequential = [app.translate(text)[0]["text"] for text in SENTENCES]
    with ThreadPoolExecutor(24) as pool:
        concurrent = list(pool.map(lambda text: app.translate(text)[0]["text"], SENTENCES * 3))
    assert concurrent == sequential * 3


def test_alignment_locates_tokens_in_both_texts(any_app: Any) -> None:
    text = f"  {SENTENCES[0]}\n{SENTENCES[1]}"
    (translated,) = any_app.translate(text)
    body = {"text": text, "translation": translated["text"]}
    pairs = any_app.post("/api/v1/align", body).json()["pairs"]
    assert len(pairs) >= 2
    for pair in pairs:
        assert len(pair["attention"]) == len(pair["target"])
        for row in pair["attention"]:
            assert len(row) == len(pair["source"])
            assert math.isclose(sum(row), 1, abs_tol=1e-2)
        for side, whole in (("source", text), ("target", translated["text"])):
            for token in pair[side]:
                letters = token["text"].removeprefix("▁")
                assert whole[token["start"] : token["end"]] == letters or letters == "</s>"
        assert all(token["log_prob"] <= 0 for token in pair["target"])


def test_align_limits_text_and_translation_separately(any_app: Any) -> None:
    text, translation = "a. " * 1666, "eines. " * 1200
    valid = {"text": text, "translation": translation}
    assert any_app.post("/api/v1/align", valid).status_code == 200
    for invalid in ({**valid, "text": "a" * 5001}, {**valid, "translation": "a" * 10001}):
        refused = any_app.post("/api/v1/align", invalid)
        assert refused.status_code == 422
        assert refused.json()["error"]["code"] == "too_long"


def test_backend_with_label_reports_version_of_label(
    start_app: Any, start_stub_server: Any, tiny_export: Path, tmp_path: Path
) -> None:
    for version in ("1", "2"):
        (tmp_path / version).symlink_to(tiny_export / "1")
    with start_stub_server(tmp_path, 0, "--label=stable=1") as (_, port):
        address = f"http://127.0.0.1:{port}/v1/models/demo"
        backends = (f"--backend=any={address}", f"--backend=stable={address}/labels/stable")
        with start_app(*backends) as app:
            app.wait(200)
            models = app.get("/api/v1/models").json()["models"]
    assert {model["name"]: model["version"] for model in models} == {"any": "2", "stable": "1"}


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_attention_returns_weights_of_one_layer(any_app: Any, kind: str) -> None:
    body = {"text": SENTENCES[0], "translation": "ein Satz", "kind": kind, "layer": 1}
    attention = any_app.post("/api/v1/attention", body).json()
    assert (attention["kind"], attention["layer"], attention["layers"]) == (kind, 1, 1)
    assert len(attention["weights"]) == 2
    for head in attention["weights"]:
        assert len(head) == len(attention["rows"])
        for row in head:
            assert len(row) == len(attention["columns"])
            assert math.isclose(sum(row), 1, abs_tol=1e-2)
    ends = [attention["rows"][-1], attention["columns"][-1]]
    assert ends == ["</s>", "</s>"] or kind == "decoder"


def test_models_returns_languages_and_limits(any_app: Any) -> None:
    response = any_app.get("/api/v1/models").json()
    (model,) = response["models"]
    assert (model["name"], model["source"], model["target"]) == ("toy", "en", "de")
    assert model["ready"] is True
    assert model["limits"]["max_source_length"] == 64
    assert response["limits"]["max_chars"] == 5000


# Errors.

BAD = {
    "no text": ({}, 422),
    "a number": ({"text": 1}, 422),
    "an empty list": ({"text": []}, 422),
    "a list of numbers": ({"text": ["a", 1]}, 422),
    "an unknown mode": ({"text": "a", "mode": "sample"}, 422),
    "too many alternatives": ({"text": "a", "alternatives": 5}, 422),
    "a negative number": ({"text": "a", "alternatives": -1}, 422),
    "a number as a string": ({"text": "a", "alternatives": "1"}, 422),
    "alternatives with greedy search": ({"text": "a", "alternatives": 1, "mode": "greedy"}, 422),
    "an unknown field": ({"text": "a", SECRET: 1}, 422),
    "another language": ({"text": SECRET, "source": "fr"}, 422),
    "another model": ({"text": SECRET, "model": SECRET}, 404),
    "too long": ({"text": SECRET * 1000}, 422),
    "too many": ({"text": [SECRET] * 65}, 422),
    "a list": ([SECRET], 422),
    "an unpaired surrogate": (b'{"text": "\\ud800 Xylophonquark"}', 400),
    "not JSON": (b"{Xylophonquark", 400),
    "not UTF-8": (b'{"text": "\xff\xfe"}', 400),
    "deep nesting": (b'{"text": ' + b"[" * 100_000, 400),
    "a huge number": (b'{"text": ' + b"9" * 10_000 + b"}", 400),
    "too large": (b'{"text": "' + b"a" * 1_000_000 + b'"}', 413),
}


@pytest.mark.parametrize(("body", "status"), BAD.values(), ids=BAD)
def test_invalid_request_is_reported_without_its_content(app: Any, body: Any, status: int) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    response = app.post("/api/v1/translate", content=content, headers=headers)
    assert response.status_code == status
    error = response.json()["error"]
    assert set(error) == {"code", "message", "request_id"}
    assert all(error.values())
    assert SECRET not in response.text


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded"])
def test_api_accepts_only_json(app: Any, kind: str | None) -> None:
    headers = {"Content-Type": kind} if kind else {}
    response = app.post("/api/v1/translate", content=b'{"text": "a"}', headers=headers)
    assert response.status_code == 415
    assert response.json()["error"]["code"] == "unsupported_media_type"


def test_body_without_content_length_is_limited(app: Any) -> None:
    def body() -> Iterator[bytes]:
        yield b'{"text": "'
        for _ in range(100):
            yield b"a" * 10_000

    response = app.post(
        "/api/v1/translate", content=body(), headers={"Content-Type": "application/json"}
    )
    assert response.status_code == 413


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/nosuch", 404),
        ("GET", "/api/v1/translate", 405),
        ("HEAD", "/api/v1/align", 405),
    ],
)
def test_unknown_path_or_method_of_the_api_returns_a_json_error(
    app: Any, method: str, path: str, status: int
) -> None:
    response = httpx.request(method, app.url + path, trust_env=False)
    assert response.status_code == status
    if method != "HEAD":
        assert set(response.json()["error"]) == {"code", "message", "request_id"}


@pytest.mark.parametrize("path", ["/nosuch", "/detect_nothing", "/static/../x"])
def test_error_of_an_unknown_address_is_a_string(app: Any, path: str) -> None:
    response = app.get(path)
    assert response.status_code == 404
    assert isinstance(response.json()["error"], str)


@pytest.mark.parametrize("path", ["/", "/api/v1/models", "/languages", "/livez", "/metrics"])
def test_head_returns_the_headers_of_get(app: Any, path: str) -> None:
    response = httpx.head(app.url + path, trust_env=False, timeout=60)
    assert (response.status_code, response.content) == (200, b"")
    assert response.headers["Content-Type"] == app.get(path).headers["Content-Type"]


def test_unknown_layer_is_refused(app: Any) -> None:
    body = {"text": "a", "translation": "b", "layer": 9}
    assert app.post("/api/v1/attention", body).status_code == 422


def test_log_contains_no_text(app: Any) -> None:
    app.translate(SECRET)
    app.post("/api/v1/translate", {"text": SECRET, "mode": SECRET})
    app.post("/translate", {"q": SECRET, "source": "en", "target": SECRET})
    httpx.post(
        f"{app.url}/translate",
        content=f"--{SECRET}",
        headers={"Content-Type": "multipart/form-data; boundary=other"},
        trust_env=False,
        timeout=60,
    )
    app.get(f"/nosuch/{SECRET}?q={SECRET}")

    def last() -> list[dict[str, Any]]:
        return [event for event in app.events() if event["event"] == "request"][-5:]

    # A request is logged after its response is sent.
    wait_until(lambda: [event["status"] for event in last()] == [200, 422, 400, 400, 404])
    assert SECRET not in app.log.read_text()
    assert last()[0]["characters"] == len(SECRET)


# LibreTranslate's API.


@pytest.mark.parametrize("form", ["json", "data"])
def test_libretranslate_request_is_translated(app: Any, form: str) -> None:
    expected = app.translate(SENTENCES[0])[0]["text"]
    fields = {"q": SENTENCES[0], "source": "en", "target": "de", "format": "text", "api_key": ""}
    response = httpx.post(f"{app.url}/translate", **{form: fields}, trust_env=False, timeout=60)
    assert response.json() == {"translatedText": expected}
    fields |= {"source": "auto", "alternatives": 2}
    response = httpx.post(f"{app.url}/translate", **{form: fields}, trust_env=False, timeout=60)
    assert response.json()["translatedText"] == expected
    assert len(response.json()["alternatives"]) <= 2


def test_libretranslate_list_returns_a_list(app: Any) -> None:
    expected = [item["text"] for item in app.translate(SENTENCES[:2])]
    body = {"q": SENTENCES[:2], "source": "en", "target": "de"}
    assert app.post("/translate", body).json() == {"translatedText": expected}


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"q": "a", "source": "en"}, 400),
        ({"q": "a", "source": "en", "target": "fr"}, 400),
        ({"q": "a", "source": "en", "target": "de", "format": "pdf"}, 400),
        ({"q": "a" * 6000, "source": "en", "target": "de"}, 400),
    ],
)
def test_libretranslate_errors_are_strings(app: Any, fields: dict[str, str], status: int) -> None:
    response = app.post("/translate", fields)
    assert response.status_code == status
    assert isinstance(response.json()["error"], str)


def test_libretranslate_languages_and_settings(app: Any) -> None:
    assert app.get("/languages").json() == [
        {"code": "de", "name": "German", "targets": []},
        {"code": "en", "name": "English", "targets": ["de"]},
    ]
    settings = app.get("/frontend/settings").json()
    assert settings["charLimit"] == 5000
    assert settings["language"]["source"] == {"code": "en", "name": "English"}
    assert settings["keyRequired"] is False
    assert settings["filesTranslation"] is True
    assert ".docx" in settings["supportedFilesFormat"]


# Operation.


def test_model_threads_have_lower_priority_than_the_server_thread(app: Any) -> None:
    app.translate(SENTENCES)
    nice = {}
    for path in Path(f"/proc/{app.process.pid}/task").iterdir():
        with suppress(ProcessLookupError):  # the thread has ended
            nice[int(path.name)] = os.getpriority(os.PRIO_PROCESS, int(path.name))
    server = nice.pop(app.process.pid)
    assert max(nice.values()) == min(19, server + NICENESS)


def test_health_routes_return_ok(any_app: Any) -> None:
    for path in ("/livez", "/readyz", "/health"):
        response = any_app.get(path)
        assert (response.status_code, response.json()) == (200, {"status": "ok"})


def test_metrics_count_requests_and_batches_without_texts(app: Any) -> None:
    app.translate(SECRET)
    app.get(f"/nosuch-{SECRET}")
    page = app.get("/metrics").text
    assert 'tfnmt_app_requests_total{method="POST",route="/api/v1/translate",status="200"}' in page
    assert 'tfnmt_app_batch_rows_bucket{le="1.0",task="beam"}' in page
    assert 'tfnmt_app_model_ready{model="toy"} 1.0' in page
    assert 'tfnmt_app_request_seconds_bucket{le="20.0",route="/api/v1/translate"}' in page
    assert "tfnmt_app_requests_in_flight 1.0" in page  # the request for this page
    assert "process_resident_memory_bytes" in page
    assert SECRET not in page


def test_openapi_description_lists_every_path(app: Any) -> None:
    spec = app.get("/spec").json()
    assert spec["openapi"].startswith("3.")
    assert set(spec["paths"]) == {
        "/api/v1/translate",
        "/api/v1/align",
        "/api/v1/attention",
        "/api/v1/models",
        "/api/v1/suggestions",
        "/api/v1/documents",
        "/api/v1/documents/{id}",
        "/api/v1/documents/{id}/content",
        "/translate",
        "/translate_file",
        "/download_file/{name}",
        "/detect",
        "/suggest",
        "/languages",
        "/frontend/settings",
        "/livez",
        "/readyz",
        "/health",
        "/metrics",
    }


@pytest.mark.parametrize("path", ["/", "/docs", "/static/js/app.js", "/api/v1/models", "/nosuch"])
def test_every_response_has_security_headers(app: Any, path: str) -> None:
    headers = app.get(path).headers
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "require-trusted-types-for 'script'" in policy
    assert "unsafe" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert "server" not in headers
    assert "Access-Control-Allow-Origin" not in headers
    assert headers["Cache-Control"] in ("no-store", "no-cache")


def test_static_files_have_their_content_types(app: Any) -> None:
    for name in ("app.css", "js/app.js", "favicon.svg"):
        kind = app.get(f"/static/{name}").headers["Content-Type"].partition(";")[0]
        assert kind in ("text/css", "text/javascript", "image/svg+xml")
