"""What is read out of a form."""

import asyncio
from typing import Any
from urllib.parse import quote_plus

import httpx
import pytest

from app.engines.engine import Columns
from app.models.batcher import Observer
from app.models.model import Model
from app.models.registry import Models
from app.server.application import create
from app.server.libretranslate import MOST_FIELDS
from app.server.metrics import Metrics
from app.server.request_guard import Desk
from app.settings import Settings
from tests.app.fake_engine import ToldEngine

TEXT = "Zwei Männer & ein 犬"
SETTINGS = Settings(models=(), backends=())


class Echo(ToldEngine):
    """Says what it is told."""

    async def call(self, signature: str, columns: Columns) -> dict[str, list[Any]]:
        return {**await super().call(signature, columns), "translation": list(columns["text"])}


def post(content: bytes, kind: str = "application/x-www-form-urlencoded") -> httpx.Response:
    async def send() -> httpx.Response:
        models = Models([Model("a", Echo(), 5.0, 0, Observer())])
        await models.start()
        metrics = Metrics()
        transport = httpx.ASGITransport(create(Desk(SETTINGS, models, metrics), metrics))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            answer = await client.post(
                "/translate", content=content, headers={"Content-Type": kind}
            )
        await models.close()
        return answer

    return asyncio.run(asyncio.wait_for(send(), 60))


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (quote_plus(TEXT), TEXT),
        (TEXT.replace("&", "%26"), TEXT),
        ("Männer%0A=+犬", "Männer\n= 犬"),
        ("", ""),
    ],
)
def test_a_form_is_read_however_it_is_written(written: str, read: str) -> None:
    answer = post(f"source=en&target=de&q={written}".encode())
    assert answer.json() == {"translatedText": read}


def test_a_form_in_parts_is_read_as_well() -> None:
    fields = {"q": TEXT, "source": "en", "target": "de"}
    parts = [
        f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields.items()
    ]
    answer = post(f"{''.join(parts)}--x--\r\n".encode(), "multipart/form-data; boundary=x")
    assert answer.json() == {"translatedText": TEXT}


def test_a_field_that_comes_again_is_a_list() -> None:
    answer = post("q=ä&q=b&source=en&target=de".encode())
    assert answer.json() == {"translatedText": ["ä", "b"]}


@pytest.mark.parametrize("written", [b"q=M\xe4nner", b"q=M%E4nner", b"q=\xff\xfe", b"q=%ED%A0%80"])
def test_what_is_no_form_in_utf_8_is_refused(written: bytes) -> None:
    answer = post(b"source=en&target=de&" + written)
    assert answer.status_code == 400
    assert "UTF-8" in answer.json()["error"]


def test_a_form_has_no_more_fields_than_are_allowed() -> None:
    answer = post(b"source=en&target=de" + b"&q=a" * (MOST_FIELDS - 1))
    assert answer.status_code == 400
    assert answer.json()["error"] == f"the form has more than {MOST_FIELDS} fields"


def test_a_form_may_be_no_larger_than_any_body() -> None:
    assert post(b"source=en&target=de&q=" + b"a" * SETTINGS.max_body).status_code == 413
