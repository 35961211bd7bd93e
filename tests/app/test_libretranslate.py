"""Parsing of forms, and languages."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote_plus

import httpx
import pytest
from libretranslatepy import LibreTranslateAPI

from app.server.application import create
from app.server.libretranslate import MAX_CONTENT_TYPE, MAX_FORM_FIELDS
from app.settings import Settings
from tests.app.fake_engine import TWO_WAYS
from tests.app.fake_server import make_guard
from tests.system.conftest import App

TEXT = "Zwei Männer & ein 犬"
SETTINGS = Settings(models=(), backends=())


def run(request: Callable[[httpx.AsyncClient], Awaitable[httpx.Response]], **card: Any) -> Any:
    """Send a request to a server of a fake model with these fields on its card."""

    async def send() -> httpx.Response:
        guard, metrics = make_guard(SETTINGS, **card)
        await guard.models.start()
        transport = httpx.ASGITransport(create(guard, metrics))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            response = await request(client)
        await guard.models.close()
        return response

    return asyncio.run(asyncio.wait_for(send(), 60))


def post(content: bytes, content_type: str = "application/x-www-form-urlencoded") -> httpx.Response:
    headers = {"Content-Type": content_type}
    return run(lambda client: client.post("/translate", content=content, headers=headers))


@pytest.mark.parametrize(
    ("encoded", "decoded"),
    [
        (quote_plus(TEXT), TEXT),
        (TEXT.replace("&", "%26"), TEXT),
        ("Männer%0A=+犬", "Männer\n= 犬"),
        ("", ""),
    ],
)
def test_url_encoded_form_is_decoded_with_or_without_escapes(encoded: str, decoded: str) -> None:
    response = post(f"source=en&target=de&q={encoded}".encode())
    assert response.json() == {"translatedText": decoded}


def multipart(text: bytes) -> bytes:
    fields = {b"q": text, b"source": b"en", b"target": b"de"}
    parts = [
        b'--x\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n' % field
        for field in fields.items()
    ]
    return b"".join(parts) + b"--x--\r\n"


def test_multipart_form_is_decoded() -> None:
    response = post(multipart(TEXT.encode()), "multipart/form-data; boundary=x")
    assert response.json() == {"translatedText": TEXT}


def test_multipart_form_that_is_not_utf_8_is_refused() -> None:
    response = post(multipart("Männer".encode("latin-1")), "multipart/form-data; boundary=x")
    assert response.status_code == 400
    assert "UTF-8" in response.json()["error"]


def test_repeated_field_is_a_list() -> None:
    response = post("q=ä&q=b&source=en&target=de".encode())
    assert response.json() == {"translatedText": ["ä", "b"]}


@pytest.mark.parametrize("encoded", [b"q=M\xe4nner", b"q=M%E4nner", b"q=\xff\xfe", b"q=%ED%A0%80"])
def test_form_that_is_not_utf_8_is_refused(encoded: bytes) -> None:
    response = post(b"source=en&target=de&" + encoded)
    assert response.status_code == 400
    assert "UTF-8" in response.json()["error"]


def test_form_with_too_many_fields_is_refused() -> None:
    response = post(b"source=en&target=de" + b"&q=a" * (MAX_FORM_FIELDS - 1))
    assert response.status_code == 400
    assert "too many fields" in response.json()["error"]
    assert str(MAX_FORM_FIELDS) in response.json()["error"]


def test_form_size_is_limited_like_any_body() -> None:
    assert post(b"source=en&target=de&q=" + b"a" * SETTINGS.max_body_bytes).status_code == 413


def test_long_content_type_is_refused() -> None:
    response = post(multipart(b"a"), f"multipart/form-data; boundary=x; {'a=b;' * 10_000}")
    assert response.status_code == 415
    assert str(MAX_CONTENT_TYPE) in response.json()["error"]


def translate(body: dict[str, Any]) -> httpx.Response:
    return run(lambda client: client.post("/translate", json=body))


def test_all_invalid_fields_are_named_without_their_values() -> None:
    response = translate({"q": [], "format": "pdf", "alternatives": "x"})
    assert [part.split(":")[0] for part in response.json()["error"].split("; ")] == [
        "q",
        "target",
        "format",
        "alternatives",
    ]
    assert "pdf" not in response.text


def test_query_parameters_are_accepted_without_a_body() -> None:
    response = run(
        lambda client: client.post("/translate", params={"q": TEXT, "source": "en", "target": "de"})
    )
    assert response.json() == {"translatedText": TEXT}


def test_form_has_precedence_over_query_parameters() -> None:
    query = {"q": "a", "source": "en", "target": "de"}
    response = run(lambda client: client.post("/translate", params=query, data={"q": "b"}))
    assert response.json() == {"translatedText": "b"}


@pytest.mark.parametrize(
    "fields", [{"format": None}, {"format": ""}, {"alternatives": -1}, {"api_key": "not needed"}]
)
def test_values_that_clients_send_for_defaults_are_accepted(fields: dict[str, Any]) -> None:
    response = translate({"q": "a", "source": "en", "target": "de", **fields})
    assert response.json() == {"translatedText": "a"}


def test_length_is_limited_per_text() -> None:
    texts = ["a" * SETTINGS.max_chars] * 2
    fields = {"source": "en", "target": "de"}
    assert translate({"q": texts, **fields}).json() == {"translatedText": texts}
    assert translate({"q": ["a" * (SETTINGS.max_chars + 1)], **fields}).status_code == 400
    assert translate({"q": ["a"] * (SETTINGS.max_texts + 1), **fields}).status_code == 400


def test_libretranslatepy_translates(server: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    client = LibreTranslateAPI(server.url, api_key="one-key")
    assert client.translate(TEXT, "en", "de") == TEXT
    assert client.languages() == [
        {"code": "de", "name": "German", "targets": ["en"]},
        {"code": "en", "name": "English", "targets": ["de"]},
    ]
    for key, status in ((None, 400), ("wrong", 403)):
        with pytest.raises(HTTPError) as refused:
            LibreTranslateAPI(server.url, api_key=key).translate(TEXT, "en", "de")
        with refused.value as response:
            assert response.status == status
            assert "API key" in json.load(response)["error"]


def test_languages_have_names() -> None:
    languages = run(lambda client: client.get("/languages"), source="en", target="pt_BR").json()
    names = {each["code"]: each["name"] for each in languages}
    assert names == {"en": "English", "pt_BR": "Portuguese (Brazil)"}


def test_languages_lists_the_targets_of_a_model_of_several_directions() -> None:
    languages = run(lambda client: client.get("/languages"), **TWO_WAYS).json()
    assert {each["code"]: each["targets"] for each in languages} == {"de": ["en"], "en": ["de"]}


@pytest.mark.parametrize(
    ("card", "directions"),
    [
        (TWO_WAYS, [{"source": "en", "target": "de"}, {"source": "de", "target": "en"}]),
        ({"targets": [], "directions": ["en-de"]}, None),
    ],
)
def test_models_lists_directions_if_there_are_several(card: Any, directions: Any) -> None:
    (model,) = run(lambda client: client.get("/api/v1/models"), **card).json()["models"]
    assert model.get("directions") == directions
