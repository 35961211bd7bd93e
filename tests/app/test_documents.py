"""HTML, protected text, detection and documents in the API."""

import asyncio
import io
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import docx
import httpx
import pytest

from app.engines.engine import Columns
from app.errors import ApiError
from app.models import documents
from app.server.application import create
from app.settings import Settings, key_digest
from tests.app.fake_engine import TWO_WAYS
from tests.app.fake_server import EchoEngine, make_guard
from tests.archives import make_zip
from tests.tfnmt.documents.files import FILES
from tfnmt.documents.archive import Limits
from tfnmt.documents.formats import Languages, read_document
from tfnmt.documents.segments import Document

SETTINGS = Settings(models=(), backends=())
Scenario = Callable[[httpx.AsyncClient], Awaitable[None]]
TO_GERMAN = {"source": "en", "target": "de"}


class HeldEngine(EchoEngine):
    """Returns each text unchanged, but only while it is open."""

    def __init__(self) -> None:
        super().__init__()
        self.open = asyncio.Event()
        self.open.set()
        self.asked = asyncio.Event()

    async def call(self, signature: str, columns: Columns) -> dict[str, list[Any]]:
        self.asked.set()
        await self.open.wait()
        return await super().call(signature, columns)

    def hold(self) -> None:
        """Keep the next calls waiting."""
        self.open.clear()
        self.asked.clear()


async def let_others_run() -> None:
    for _ in range(100):
        await asyncio.sleep(0)


def run(
    scenario: Scenario, settings: Settings = SETTINGS, engine: HeldEngine | None = None, **card: Any
) -> None:
    """Run a scenario with a server whose model returns each text unchanged."""

    async def start() -> None:
        guard, metrics = make_guard(settings, engine, **{**TWO_WAYS, **card})
        await guard.models.start()
        transport = httpx.ASGITransport(create(guard, metrics))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            await scenario(client)
        await guard.models.close()

    asyncio.run(asyncio.wait_for(start(), 60))


async def send(
    client: httpx.AsyncClient, name: str, path: str = "/api/v1/documents", **fields: str
) -> httpx.Response:
    files = {"file": (name, FILES[f"a.{name.rpartition('.')[2]}"])}
    return await client.post(path, files=files, data={**TO_GERMAN, **fields})


async def finished(client: httpx.AsyncClient, job_id: str) -> dict[str, Any]:
    while True:
        state = (await client.get(f"/api/v1/documents/{job_id}")).json()
        if state["state"] not in ("waiting", "translating"):
            return state
        await asyncio.sleep(0.01)


def test_html_is_translated_by_both_apis() -> None:
    html = '<p title="b">One <b>two</b>. <a href="x">Three</a><br>four</p><script>a < b</script>'

    async def scenario(client: httpx.AsyncClient) -> None:
        body = {"text": [html, "plain"], "format": "html", **TO_GERMAN}
        response = (await client.post("/api/v1/translate", json=body)).json()
        assert [each["text"] for each in response["translations"]] == [html, "plain"]
        assert response["notices"] == []
        form = {"q": html, "format": "html", **TO_GERMAN}
        response = (await client.post("/translate", data=form)).json()
        assert response == {"translatedText": html}

    run(scenario)


def test_protected_text_and_glossary_are_fields_of_the_api() -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        body = {"text": "See {name} or the house.", "glossary": "house\tHaus", "protect": True}
        response = (await client.post("/api/v1/translate", json=body)).json()
        assert response["translations"][0]["text"].startswith("See {name} or")
        for glossary, problem in ("one", "not two terms"), ("a\tb\na\tc", "has the translations"):
            response = await client.post("/api/v1/translate", json={**body, "glossary": glossary})
            assert response.status_code == 422
            assert problem in response.json()["error"]["message"]
        response = await client.post("/api/v1/translate", json={**body, "alternatives": 1})
        assert response.status_code == 422

    run(scenario)


def test_limits_apply_to_html() -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        for text, problem in ("<p>a</p>" * 9, "sentences"), ("<div>" * 900, "nested"):
            body = {"text": text, "format": "html"}
            response = await client.post("/api/v1/translate", json=body)
            assert response.status_code == 422
            assert problem in response.json()["error"]["message"]

    run(scenario, Settings(models=(), backends=(), max_sentences=8))


@pytest.mark.parametrize(
    ("text", "source"),
    [("Where can I buy a ticket?", "en"), ("Wo kann ich eine Fahrkarte kaufen?", "de")],
)
def test_source_language_is_detected(text: str, source: str) -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        first, second = (await client.post("/detect", json={"q": text})).json()
        assert first["language"] == source
        assert first["confidence"] > 80 > second["confidence"]
        for target in ("de", "en"):
            body = {"q": [text], "source": "auto", "target": target}
            response = (await client.post("/translate", json=body)).json()
            assert response == {"translatedText": [text], "detectedLanguage": [first]}
            body = {"text": text, "source": "auto", "target": target}
            response = (await client.post("/api/v1/translate", json=body)).json()
            assert response["translations"][0]["text"] == text
            assert response["detected_language"] == first
        file = {"file": ("a.txt", text.encode())}
        other = "en" if source == "de" else "de"
        form = {"source": "auto", "target": other}
        state = (await client.post("/api/v1/documents", files=file, data=form)).json()
        assert (state["source"], state["target"]) == (source, other)
        form = {"source": "auto", "target": source}
        error = (await client.post("/api/v1/documents", files=file, data=form)).json()["error"]
        assert f"is in {source} already" in error["message"]

    run(scenario)


def test_text_without_letters_has_no_detected_language() -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        assert (await client.post("/detect", data={"q": "12"})).json() == []
        body = {"q": "12", "source": "auto", "target": "de"}
        response = (await client.post("/translate", json=body)).json()
        assert response == {"translatedText": "12"}
        response = await client.post("/api/v1/translate", json={"text": "12", "source": "auto"})
        assert (response.status_code, "target" in response.text) == (422, True)

    run(scenario)


@pytest.mark.parametrize("name", FILES)
def test_document_of_each_format_is_translated(name: str) -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        response = await send(client, f"../../x y.{name[2:]}")
        assert response.status_code == 202
        state = await finished(client, response.json()["id"])
        assert (state["state"], state["done"]) == ("done", state["sentences"])
        download = await client.get(f"/api/v1/documents/{state['id']}/content")
        assert download.headers["content-type"] == "application/octet-stream"
        expected = f'attachment; filename="translation.{name[2:]}"'
        assert download.headers["content-disposition"] == expected
        if name == "a.docx":
            paragraph = docx.Document(io.BytesIO(download.content)).paragraphs[1]
            assert paragraph.text == "one two three four.\tafter"
        if name == "a.txt":
            assert download.content == FILES[name]

    run(scenario)


def test_libretranslate_file_is_translated() -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        settings = (await client.get("/frontend/settings")).json()
        assert settings["filesTranslation"]
        assert ".docx" in settings["supportedFilesFormat"]
        response = await send(client, "a.html", "/translate_file", source="auto")
        url = response.json()["translatedFileUrl"]
        assert url.startswith("http://test/download_file/")
        assert (await client.get(url)).content == FILES["a.html"]
        response = await client.get("/download_file/unknown.html")
        assert (response.status_code, type(response.json()["error"])) == (404, str)

    run(scenario)


ARGOS = "TFNMT_ARGOS_DOCUMENTS"
"""Environment variable with the folder `examples` of a clone of argos-translate-files, the package
with which LibreTranslate translates documents. The package on PyPI does not have these files."""


@pytest.mark.skipif(ARGOS not in os.environ, reason=f"{ARGOS}: not set to a folder of documents")
def test_documents_of_argos_translate_files_are_translated() -> None:
    def texts(name: str, content: bytes) -> list[str]:
        document = read_document(content, name, Limits(), Languages("en", "de"))
        return [segment.text.strip() for segment in document.segments]

    async def scenario(client: httpx.AsyncClient) -> None:
        paths = {path.suffix: path for path in Path(os.environ[ARGOS]).glob("example.*")}
        assert paths.keys() == {".docx", ".epub", ".html", ".odt", ".pdf", ".srt", ".txt"}
        for suffix, path in paths.items():
            content = path.read_bytes()
            files = {"file": (path.name, content)}
            response = await client.post("/translate_file", files=files, data=TO_GERMAN)
            if suffix == ".pdf":
                assert (response.status_code, "unknown format" in response.text) == (400, True)
                continue
            assert response.status_code == 200, response.text
            translated = (await client.get(response.json()["translatedFileUrl"])).content
            assert texts(path.name, translated) == texts(path.name, content)

    run(scenario)


def test_deleted_and_expired_documents_are_gone() -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        job_id = (await send(client, "a.txt")).json()["id"]
        assert (await client.delete(f"/api/v1/documents/{job_id}")).status_code == 204
        assert (await client.get(f"/api/v1/documents/{job_id}")).status_code == 404

    run(scenario)

    async def expired() -> None:
        from tfnmt.documents.translation import Options

        guard, _ = make_guard(SETTINGS)
        await guard.models.start()
        (model,) = guard.models
        assert model.card
        jobs = documents.DocumentJobs(0.05, 10)
        document = Document([], lambda: b"x")
        job = jobs.start("me", ".txt", document, model, model.card.directions[0], Options())
        assert jobs.find(job.id) is job
        await asyncio.sleep(0.1)
        with pytest.raises(documents.ApiError, match="not found"):
            jobs.find(job.id)
        assert job.content == b""
        await guard.models.close()

    asyncio.run(expired())


def test_document_that_is_not_finished_does_not_expire() -> None:
    engine = HeldEngine()

    async def scenario(client: httpx.AsyncClient) -> None:
        engine.hold()
        job_id = (await send(client, "a.txt")).json()["id"]
        await engine.asked.wait()
        state = (await client.get(f"/api/v1/documents/{job_id}")).json()
        assert state["state"] == "translating"

    run(scenario, replace(SETTINGS, document_minutes=0), engine)


LONG = {"file": ("a.txt", b"".join(b"Line %d.\n" % n for n in range(200)))}


def test_canceled_document_is_not_translated_further() -> None:
    engine = HeldEngine()

    async def scenario(client: httpx.AsyncClient) -> None:
        engine.hold()
        response = await client.post("/api/v1/documents", files=LONG, data=TO_GERMAN)
        path = f"/api/v1/documents/{response.json()['id']}"
        await engine.asked.wait()
        state = (await client.get(path)).json()
        assert (state["state"], state["done"], state["sentences"]) == ("translating", 0, 200)
        assert (await client.get(f"{path}/content")).status_code == 409
        assert (await client.delete(path)).status_code == 204
        assert (await client.get(path)).status_code == 404
        await let_others_run()
        answered = len(engine.calls)
        engine.open.set()
        await let_others_run()
        assert len(engine.calls) == answered + 1  # the batch that the engine was working on
        job_id = (await send(client, "a.txt")).json()["id"]
        assert (await finished(client, job_id))["state"] == "done"

    run(scenario, engine=engine)


def test_document_over_its_deadline_fails() -> None:
    engine = HeldEngine()

    async def scenario(client: httpx.AsyncClient) -> None:
        engine.hold()
        response = await client.post("/api/v1/documents", files=LONG, data=TO_GERMAN)
        state = await finished(client, response.json()["id"])
        assert state["state"] == "failed"
        assert "took longer than 1 seconds; divide" in state["error"]
        engine.open.set()

    run(scenario, Settings(models=(), backends=(), document_deadline=0.6), engine)


def test_number_of_documents_is_limited() -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        statuses = {(await send(client, "a.txt")).status_code for _ in range(60)}
        assert statuses <= {202, 429}

    run(scenario)


@pytest.mark.parametrize(
    ("name", "content", "status", "problem"),
    [
        ("a.exe", b"x", 422, "unknown format"),
        ("docx", b"x", 422, "unknown format"),
        ("a.docx", b"x", 422, "damaged"),
        ("a.docx", make_zip({"word/document.xml": b"\0" * 30_000_000}), 422, "unpacked"),
        ("a.txt", b"\xff", 422, "UTF-8"),
        ("a.txt", b"x" * 1_200_000, 413, "too large"),
        ("a.txt", b"a b. " * 30_000, 422, "limit"),
    ],
)
def test_bad_document_gets_one_clear_sentence(
    name: str, content: bytes, status: int, problem: str
) -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        for path in ("/api/v1/documents", "/translate_file"):
            response = await client.post(path, files={"file": (name, content)}, data=TO_GERMAN)
            is_libretranslate = path == "/translate_file"
            assert response.status_code == (400 if is_libretranslate and status == 422 else status)
            error = response.json()["error"]
            message = error if isinstance(error, str) else error["message"]
            assert problem in message
            assert "\n" not in message

    run(scenario, Settings(models=(), backends=(), document_mb=1, max_chars=500))


def test_request_without_a_file_or_of_another_site_is_refused() -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        response = await client.post("/api/v1/documents", json={})
        assert response.status_code == 415
        response = await client.post("/api/v1/documents", files={"other": ("a", b"b")})
        assert response.status_code == 422
        for charset in ("punycode", "unicode_escape"):
            kind = {"Content-Type": f"multipart/form-data; boundary=x; charset={charset}"}
            response = await client.post("/api/v1/documents", content=b"--x--", headers=kind)
            assert (response.status_code, "utf-8" in response.text) == (415, True)
        headers = {"Origin": "https://evil.example"}
        response = await client.post(
            "/translate_file", files={"file": ("a", b"b")}, headers=headers
        )
        assert response.status_code == 403

    run(scenario)


def test_key_in_a_header_is_checked_before_the_form() -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        kind = {"Content-Type": "text/plain"}
        response = await client.post("/api/v1/documents", content=b"x", headers=kind)
        assert response.status_code == 401
        response = await send(client, "a.txt", api_key="key")
        assert response.status_code == 401
        response = await send(client, "a.txt", "/translate_file", api_key="key")
        assert response.status_code == 200

    run(scenario, Settings(models=(), backends=(), key_digests=frozenset({key_digest("key")})))


def test_documents_that_are_being_read_count_for_their_client() -> None:
    async def scenario() -> None:
        jobs, released, started = documents.DocumentJobs(60, 60), asyncio.Event(), []

        async def read(client: str) -> None:
            async with jobs.reading(client):
                started.append(client)
                await released.wait()

        tasks = [asyncio.create_task(read("one")) for _ in range(documents.MAX_PER_CLIENT)]
        await asyncio.sleep(0)
        with pytest.raises(ApiError) as caught:
            await read("one")
        assert caught.value.status == 429
        tasks.append(asyncio.create_task(read("another")))
        await asyncio.sleep(0)
        assert started == ["one", "another"]
        released.set()
        await asyncio.gather(*tasks)
        assert len(started) == documents.MAX_PER_CLIENT + 1

    asyncio.run(scenario())


def test_uploads_at_the_same_time_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.server.documents.MAX_UPLOADS_PER_CLIENT", 1)
    received, released = asyncio.Event(), asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield b"--x\r\n"
        received.set()
        await released.wait()
        yield b"--x--"

    async def scenario(client: httpx.AsyncClient) -> None:
        kind = {"Content-Type": "multipart/form-data; boundary=x"}
        path = "/api/v1/documents"
        slow = asyncio.create_task(client.post(path, content=slowly(), headers=kind))
        await received.wait()
        refused = await send(client, "a.txt")
        assert (refused.status_code, "1 uploads" in refused.text) == (429, True)
        monkeypatch.setattr("app.server.documents.MAX_UPLOADS_PER_CLIENT", 2)
        monkeypatch.setattr("app.server.documents.MAX_UPLOADS", 1)
        assert (await send(client, "a.txt")).status_code == 503
        released.set()
        await slow
        assert (await send(client, "a.txt")).status_code == 202

    run(scenario)


def test_document_over_the_rate_is_read_again_after_the_time_to_wait() -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        async def post(characters: int) -> httpx.Response:
            files = {"file": ("a.txt", b"a" * characters)}
            return await client.post("/api/v1/documents", files=files, data=TO_GERMAN)

        assert (await post(5950)).status_code == 202
        assert (await post(100)).headers["Retry-After"] == "1"
        assert (await post(1)).status_code == 429
        await asyncio.sleep(1)
        assert (await post(100)).status_code == 202
        assert read == [5950, 100, 100]

    read: list[int] = []
    with pytest.MonkeyPatch.context() as patch:

        def counted(content: bytes, *arguments: Any) -> Document:
            read.append(len(content))
            return read_document(content, *arguments)

        patch.setattr("app.server.documents.read_document", counted)
        run(scenario, replace(SETTINGS, rate=6000))


@pytest.mark.parametrize("canceled", [False, True])
def test_document_that_is_not_translated_costs_nothing(canceled: bool) -> None:
    engine = HeldEngine()

    async def scenario(client: httpx.AsyncClient) -> None:
        engine.hold()
        for _ in range(2):  # each is charged 4,000 characters, 20 per sentence
            response = await client.post("/api/v1/documents", files=LONG, data=TO_GERMAN)
            assert response.status_code == 202
            job_id = response.json()["id"]
            if canceled:
                await client.delete(f"/api/v1/documents/{job_id}")
            else:
                assert (await finished(client, job_id))["state"] == "failed"
        engine.open.set()

    run(scenario, replace(SETTINGS, rate=6000, document_deadline=0.3), engine)


def test_document_that_takes_too_long_to_read_is_refused() -> None:
    async def scenario() -> None:
        async with documents.DocumentJobs(60, 0.01).reading("one"):
            await asyncio.sleep(5)

    with pytest.raises(ApiError, match="too long"):
        asyncio.run(scenario())


def test_thread_that_reads_too_long_holds_only_a_thread_for_documents(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running, released = [], threading.Event()

    def read(*arguments: Any) -> None:
        running.append(arguments)
        released.wait(30)

    monkeypatch.setattr("app.server.documents.read_document", read)

    async def scenario(client: httpx.AsyncClient) -> None:
        for _ in range(2 * documents.PARALLEL):
            response = await send(client, "a.txt")
            assert (response.status_code, response.json()["error"]["code"]) == (422, "invalid")
        assert len(running) == documents.PARALLEL
        released.set()

    run(scenario, replace(SETTINGS, document_deadline=0.05))


def test_finished_document_is_kept_until_another_one_needs_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(documents, "MAX_DOCUMENTS", 1)

    async def scenario(client: httpx.AsyncClient) -> None:
        first = (await send(client, "a.txt")).json()["id"]
        assert (await send(client, "a.txt")).status_code == 503
        await finished(client, first)
        files = {"file": ("a.unknown", b"text")}
        refused = await client.post("/api/v1/documents", files=files, data=TO_GERMAN)
        assert refused.status_code == 422
        assert (await client.get(f"/api/v1/documents/{first}")).status_code == 200
        assert (await send(client, "a.txt")).status_code == 202
        assert (await client.get(f"/api/v1/documents/{first}")).status_code == 404

    run(scenario)
