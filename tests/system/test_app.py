"""The web application's API over real sockets, before a model of its own or behind a server."""

import json
import math
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.engines.saved_model import NICER
from tests.system.conftest import wait_until
from tfnmt.data.corpora.toy import grammar

SENTENCES = [source for source, _ in islice(grammar.pairs("test"), 24)]
SECRET = "Xylophonquark"
"""A word that no answer to an error and no log may have."""


@pytest.fixture(scope="module")
def behind(start_app: Any, start_standin: Any, tiny_export: Path) -> Iterator[Any]:
    """An application in front of a TensorFlow Serving."""
    with (
        start_standin(tiny_export) as (_, port),
        start_app(f"--backend=toy=http://127.0.0.1:{port}/v1/models/demo", "--cache=0") as running,
    ):
        running.wait(200)
        yield running


@pytest.fixture(params=["app", "behind"])
def either(request: pytest.FixtureRequest) -> Any:
    """Both kinds of application."""
    return request.getfixturevalue(request.param)


# Translating.


def test_a_text_and_a_list_are_translated(either: Any) -> None:
    one = either.translate(SENTENCES[0])
    assert len(one) == 1
    assert set(one[0]) == {"text", "score", "truncated", "alternatives"}
    assert one[0]["alternatives"] == []
    assert len(either.translate(SENTENCES[:3])) == 3


def test_an_answer_says_which_model_gave_it_and_bears_its_number(either: Any) -> None:
    answer = either.post("/api/v1/translate", {"text": SENTENCES[0]})
    body = answer.json()
    assert set(body) == {"translations", "model", "took_ms", "request_id"}
    assert body["model"] == {"name": "toy", "version": "1"}
    assert body["request_id"] == answer.headers["X-Request-Id"]
    assert body["took_ms"] >= 0


def test_both_kinds_of_engine_give_the_same(app: Any, behind: Any) -> None:
    for mode in ("beam", "greedy"):
        here, there = (one.translate(SENTENCES[:6], mode=mode) for one in (app, behind))
        assert [one["text"] for one in here] == [one["text"] for one in there]
        for one, other in zip(here, there, strict=True):
            assert math.isclose(one["score"], other["score"], abs_tol=1e-3)


def test_lines_and_white_space_stay(either: Any) -> None:
    first, second = SENTENCES[:2]
    alone = [one["text"] for one in either.translate([first, second])]
    (whole,) = either.translate(f"\t{first}\r\n\n  {second}   \n")
    assert whole["text"] == f"\t{alone[0]}\r\n\n  {alone[1]}   \n"


@pytest.mark.parametrize("text", ["", " ", "\n\n", "\u00a0"])
def test_a_blank_text_stays_as_it_is(app: Any, text: str) -> None:
    assert app.translate(text) == [
        {"text": text, "score": 0.0, "truncated": False, "alternatives": []}
    ]


@pytest.mark.parametrize("count", [1, 3, 4])
def test_alternatives_are_no_more_than_asked_for_and_in_order(either: Any, count: int) -> None:
    found = either.translate(SENTENCES[:8], alternatives=count)
    assert max(len(one["alternatives"]) for one in found) >= 1
    assert max(len(one["alternatives"]) for one in found) <= count
    for one, best in zip(found, either.translate(SENTENCES[:8]), strict=True):
        scores = [one["score"], *(other["score"] for other in one["alternatives"])]
        assert scores == sorted(scores, reverse=True)
        assert one["text"] == best["text"]


def test_a_text_longer_than_the_model_takes_says_so(app: Any) -> None:
    one, other = app.translate(["word " * 200, "word"], mode="greedy")
    assert (one["truncated"], other["truncated"]) == (True, False)


def test_many_at_once_are_answered_as_one_alone(app: Any) -> None:
    alone = [app.translate(text)[0]["text"] for text in SENTENCES]
    with ThreadPoolExecutor(24) as pool:
        together = list(pool.map(lambda text: app.translate(text)[0]["text"], SENTENCES * 3))
    assert together == alone * 3


def test_pieces_of_an_alignment_stand_in_the_texts(either: Any) -> None:
    text = f"  {SENTENCES[0]}\n{SENTENCES[1]}"
    (translated,) = either.translate(text)
    body = {"text": text, "translation": translated["text"]}
    pairs = either.post("/api/v1/align", body).json()["pairs"]
    assert len(pairs) >= 2
    for pair in pairs:
        assert len(pair["attention"]) == len(pair["target"])
        for row in pair["attention"]:
            assert len(row) == len(pair["source"])
            assert math.isclose(sum(row), 1, abs_tol=1e-2)
        for side, whole in (("source", text), ("target", translated["text"])):
            for piece in pair[side]:
                letters = piece["text"].removeprefix("▁")
                assert whole[piece["start"] : piece["end"]] == letters or letters == "</s>"
        assert all(piece["log_prob"] <= 0 for piece in pair["target"])


def test_a_text_of_full_length_is_aligned_with_a_longer_translation(either: Any) -> None:
    text, translation = "a. " * 1666, "eines. " * 1200
    either_way = {"text": text, "translation": translation}
    assert either.post("/api/v1/align", either_way).status_code == 200
    for body in ({**either_way, "text": "a" * 5001}, {**either_way, "translation": "a" * 10001}):
        refused = either.post("/api/v1/align", body)
        assert refused.status_code == 422
        assert refused.json()["error"]["code"] == "too_long"


def test_behind_a_label_the_version_is_the_labels(
    start_app: Any, start_standin: Any, tiny_export: Path, tmp_path: Path
) -> None:
    for version in ("1", "2"):
        (tmp_path / version).symlink_to(tiny_export / "1")
    with start_standin(tmp_path, 0, "--label=stable=1") as (_, port):
        address = f"http://127.0.0.1:{port}/v1/models/demo"
        backends = (f"--backend=any={address}", f"--backend=stable={address}/labels/stable")
        with start_app(*backends) as app:
            app.wait(200)
            models = app.get("/api/v1/models").json()["models"]
    assert {model["name"]: model["version"] for model in models} == {"any": "2", "stable": "1"}


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_attention_is_that_of_a_layer(either: Any, kind: str) -> None:
    body = {"text": SENTENCES[0], "translation": "ein Satz", "kind": kind, "layer": 1}
    found = either.post("/api/v1/attention", body).json()
    assert (found["kind"], found["layer"], found["layers"]) == (kind, 1, 1)
    assert len(found["weights"]) == 2
    for head in found["weights"]:
        assert len(head) == len(found["rows"])
        for row in head:
            assert len(row) == len(found["columns"])
            assert math.isclose(sum(row), 1, abs_tol=1e-2)
    ends = [found["rows"][-1], found["columns"][-1]]
    assert ends == ["</s>", "</s>"] or kind == "decoder"


def test_the_models_tell_languages_and_limits(either: Any) -> None:
    answer = either.get("/api/v1/models").json()
    (model,) = answer["models"]
    assert (model["name"], model["source"], model["target"]) == ("toy", "en", "de")
    assert model["ready"] is True
    assert model["limits"]["max_source_length"] == 64
    assert answer["limits"]["max_chars"] == 5000


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
    "alternatives of greedy": ({"text": "a", "alternatives": 1, "mode": "greedy"}, 422),
    "an unknown field": ({"text": "a", SECRET: 1}, 422),
    "another language": ({"text": SECRET, "source": "fr"}, 422),
    "another model": ({"text": SECRET, "model": SECRET}, 404),
    "too long": ({"text": SECRET * 1000}, 422),
    "too many": ({"text": [SECRET] * 65}, 422),
    "a list": ([SECRET], 422),
    "half a surrogate pair": (b'{"text": "\\ud800 Xylophonquark"}', 422),
    "no JSON": (b"{Xylophonquark", 400),
    "no UTF-8": (b'{"text": "\xff\xfe"}', 400),
    "deep": (b'{"text": ' + b"[" * 100_000, 400),
    "a huge number": (b'{"text": ' + b"9" * 10_000 + b"}", 400),
    "too large": (b'{"text": "' + b"a" * 1_000_000 + b'"}', 413),
}


@pytest.mark.parametrize(("body", "status"), BAD.values(), ids=BAD)
def test_what_is_wrong_is_told_and_not_repeated(app: Any, body: Any, status: int) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    answer = app.post("/api/v1/translate", content=content, headers=headers)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert set(error) == {"code", "message", "request_id"}
    assert all(error.values())
    assert SECRET not in answer.text


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded"])
def test_the_api_takes_json_alone(app: Any, kind: str | None) -> None:
    headers = {"Content-Type": kind} if kind else {}
    answer = app.post("/api/v1/translate", content=b'{"text": "a"}', headers=headers)
    assert answer.status_code == 415
    assert answer.json()["error"]["code"] == "unsupported_media_type"


def test_a_body_that_says_nothing_of_its_length_is_limited_too(app: Any) -> None:
    def body() -> Iterator[bytes]:
        yield b'{"text": "'
        for _ in range(100):
            yield b"a" * 10_000

    answer = app.post(
        "/api/v1/translate", content=body(), headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 413


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nosuch", 404), ("GET", "/api/v1/translate", 405), ("GET", "/static/../x", 404)],
)
def test_other_addresses_and_methods_are_errors_like_all_others(
    app: Any, method: str, path: str, status: int
) -> None:
    answer = httpx.request(method, app.url + path, trust_env=False)
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"code", "message", "request_id"}


def test_a_layer_that_is_not_there_is_told(app: Any) -> None:
    body = {"text": "a", "translation": "b", "layer": 9}
    assert app.post("/api/v1/attention", body).status_code == 422


def test_no_text_is_logged(app: Any) -> None:
    app.translate(SECRET)
    app.post("/api/v1/translate", {"text": SECRET, "mode": SECRET})
    app.post("/translate", {"q": SECRET, "source": "en", "target": SECRET})
    httpx.post(
        f"{app.url}/translate", content=f"--{SECRET}", trust_env=False, timeout=60,
        headers={"Content-Type": "multipart/form-data; boundary=other"},
    )  # fmt: skip
    app.get(f"/nosuch/{SECRET}?q={SECRET}")

    def last() -> list[dict[str, Any]]:
        return [event for event in app.events() if event["event"] == "request"][-5:]

    # An answer is sent before it is logged.
    wait_until(lambda: [event["status"] for event in last()] == [200, 422, 422, 400, 404])
    assert SECRET not in app.log.read_text()
    assert last()[0]["characters"] == len(SECRET)


# LibreTranslate's clients.


@pytest.mark.parametrize("form", ["json", "data"])
def test_libretranslates_clients_are_understood(app: Any, form: str) -> None:
    expected = app.translate(SENTENCES[0])[0]["text"]
    fields = {"q": SENTENCES[0], "source": "en", "target": "de", "format": "text", "api_key": ""}
    answer = httpx.post(f"{app.url}/translate", **{form: fields}, trust_env=False, timeout=60)
    assert answer.json() == {"translatedText": expected}
    fields |= {"source": "auto", "alternatives": 2}
    answer = httpx.post(f"{app.url}/translate", **{form: fields}, trust_env=False, timeout=60)
    assert answer.json()["translatedText"] == expected
    assert len(answer.json()["alternatives"]) <= 2


def test_a_list_of_texts_gives_a_list(app: Any) -> None:
    expected = [one["text"] for one in app.translate(SENTENCES[:2])]
    body = {"q": SENTENCES[:2], "source": "en", "target": "de"}
    assert app.post("/translate", body).json() == {"translatedText": expected}


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"q": "a", "source": "en"}, 400),
        ({"q": "a", "source": "en", "target": "fr"}, 422),
        ({"q": "<b>a</b>", "source": "en", "target": "de", "format": "html"}, 400),
        ({"q": "a" * 6000, "source": "en", "target": "de"}, 422),
    ],
)
def test_their_errors_are_strings(app: Any, fields: dict[str, str], status: int) -> None:
    answer = app.post("/translate", fields)
    assert answer.status_code == status
    assert isinstance(answer.json()["error"], str)


def test_languages_and_settings_are_libretranslates(app: Any) -> None:
    assert app.get("/languages").json() == [
        {"code": "de", "name": "German", "targets": []},
        {"code": "en", "name": "English", "targets": ["de"]},
    ]
    settings = app.get("/frontend/settings").json()
    assert settings["charLimit"] == 5000
    assert settings["language"]["source"] == {"code": "en", "name": "English"}
    assert settings["keyRequired"] is False


# Those who look after it.


def test_who_takes_requests_goes_before_the_model(app: Any) -> None:
    app.translate(SENTENCES)
    nice = {}
    for path in Path(f"/proc/{app.process.pid}/task").iterdir():
        with suppress(ProcessLookupError):  # a thread that has ended since
            nice[int(path.name)] = os.getpriority(os.PRIO_PROCESS, int(path.name))
    taker = nice.pop(app.process.pid)
    assert max(nice.values()) == min(19, taker + NICER)


def test_it_says_that_it_lives_and_is_ready(either: Any) -> None:
    for path in ("/livez", "/readyz", "/health"):
        answer = either.get(path)
        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


def test_metrics_count_requests_and_batches_without_texts(app: Any) -> None:
    app.translate(SECRET)
    app.get(f"/nosuch-{SECRET}")
    page = app.get("/metrics").text
    assert 'app_requests_total{method="POST",route="/api/v1/translate",status="200"}' in page
    assert 'app_batch_rows_bucket{le="1.0",task="beam"}' in page
    assert 'app_model_ready{model="toy"} 1.0' in page
    assert "process_resident_memory_bytes" in page
    assert SECRET not in page


def test_the_description_tells_of_every_address(app: Any) -> None:
    spec = app.get("/spec").json()
    assert spec["openapi"].startswith("3.")
    assert {
        "/api/v1/translate", "/api/v1/align", "/api/v1/attention", "/api/v1/models", "/translate",
        "/languages", "/frontend/settings", "/livez", "/readyz", "/health", "/metrics",
    } == set(spec["paths"])  # fmt: skip


@pytest.mark.parametrize("path", ["/", "/docs", "/static/js/app.js", "/api/v1/models", "/nosuch"])
def test_every_answer_has_the_headers_that_protect_the_page(app: Any, path: str) -> None:
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


def test_scripts_are_sent_as_scripts(app: Any) -> None:
    for name in ("app.css", "js/app.js", "favicon.svg"):
        kind = app.get(f"/static/{name}").headers["Content-Type"].partition(";")[0]
        assert kind in ("text/css", "text/javascript", "image/svg+xml")
