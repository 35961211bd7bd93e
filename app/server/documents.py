"""Routes for documents: `/api/v1/documents`, and LibreTranslate's `/translate_file`."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

from cachetools import TTLCache
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field
from starlette.datastructures import UploadFile

from app.engines.engine import Direction
from app.errors import ApiError, OverloadedError
from app.models.documents import DocumentJob, DocumentJobs, reading_threads
from app.models.model import Model
from app.models.segments import in_thread
from app.server.detection import AUTO, LanguageDetection
from app.server.libretranslate import LibreTranslateRoute, checked_content_type
from app.server.rate_limit import MAX_CLIENTS, Client
from app.server.request_guard import RequestGuard, disconnected
from app.server.schemas import MAX_GLOSSARY, Error, PlainError
from tfnmt.documents.archive import Limits
from tfnmt.documents.formats import FORMATS, Languages, read_document, suffix_of
from tfnmt.documents.glossary import parse_glossary
from tfnmt.documents.segments import Document
from tfnmt.documents.translation import Options, count_sentences

MULTIPART = "multipart/form-data"
MAX_FIELDS = 10
MAX_UPLOADS_PER_CLIENT = 10
REFUSED_SECONDS = 60 * 60
"""Maximum time that a client waits after a document above its rate."""
MAX_UPLOADS = 100
"""Maximum documents that are received at the same time. They are on disk."""
UNPACKED_RATIO = 10
"""An archive may be this many times as large unpacked as a document may be."""

STATUSES = (400, 401, 403, 408, 413, 415, 422, 429, 503)
ERRORS: dict[int | str, dict[str, Any]] = {status: {"model": Error} for status in STATUSES}
FIND_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": Error} for status in (401, 404, 409, 422, 429)
}
PLAIN_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": PlainError} for status in (*STATUSES, 404, 409)
}
BINARY = {"type": "string", "format": "binary"}
CONTENT: dict[str, Any] = {
    "content": {"application/octet-stream": {"schema": BINARY}},
    "description": "the translated document",
}


class DocumentState(BaseModel):
    """A document that is being translated."""

    id: str = Field(description="id of the document; whoever knows it can read the translation")
    state: Literal["waiting", "translating", "done", "failed", "canceled"] = Field(
        description="state of the translation"
    )
    source: str = Field(description="language code of the document, which may be detected")
    target: str = Field(description="language code of the translation")
    sentences: int = Field(description="number of sentences; 0 until the translation starts")
    done: int = Field(description="number of translated sentences")
    error: str | None = Field(None, description="reason why the translation failed")
    notices: list[str] = Field(
        description="protected parts that the model lost, and terms that were not replaced"
    )
    expires_at: float | None = Field(
        description="time at which the document is deleted, in seconds since 1970; null until the "
        "translation has ended"
    )


class TranslatedFile(BaseModel):
    """The answer of LibreTranslate's `/translate_file`."""

    translatedFileUrl: str = Field(  # noqa: N815  LibreTranslate's name
        description="address of the translated document"
    )


def _body(*optional: str) -> dict[str, Any]:
    fields = {name: {"type": "string"} for name in ("source", "target", *optional)}
    schema = {
        "type": "object",
        "properties": {"file": BINARY, **fields},
        "required": ["file", "target"],
    }
    return {"requestBody": {"required": True, "content": {MULTIPART: {"schema": schema}}}}


def routes(guard: RequestGuard, jobs: DocumentJobs, detection: LanguageDetection) -> APIRouter:
    """Return the routes."""
    router = APIRouter()
    libretranslate = APIRouter(tags=["LibreTranslate"], route_class=LibreTranslateRoute)
    uploads = _Uploads(guard, jobs, detection)

    @router.post(
        "/api/v1/documents",
        status_code=202,
        responses=ERRORS,
        openapi_extra=_body("model", "glossary"),
        tags=["documents"],
    )
    async def create_document(request: Request) -> DocumentState:
        """Translate a document. The field `source` may be `auto`."""
        guard.rate_limiter.check_key(request)
        return _state(await uploads.start(request))

    @router.get("/api/v1/documents/{id}", responses=FIND_ERRORS, tags=["documents"])
    async def document_state(request: Request, id: str) -> DocumentState:
        """Return the state of a document."""
        guard.rate_limiter.check_key(request)
        return _state(jobs.find(id))

    @router.get(
        "/api/v1/documents/{id}/content",
        responses={200: CONTENT, **FIND_ERRORS},
        response_class=Response,
        tags=["documents"],
    )
    async def document_content(request: Request, id: str) -> Response:
        """Return the translated document."""
        guard.rate_limiter.check_key(request)
        return _download(jobs.find(id))

    @router.delete(
        "/api/v1/documents/{id}", status_code=204, responses=FIND_ERRORS, tags=["documents"]
    )
    async def delete_document(request: Request, id: str) -> None:
        """Cancel the translation, and delete the document."""
        guard.rate_limiter.check_key(request)
        jobs.delete(jobs.find(id))

    @libretranslate.post(
        "/translate_file",
        responses={status: PLAIN_ERRORS[status] for status in STATUSES if status not in (401, 422)},
        openapi_extra=_body("api_key"),
    )
    async def translate_file(request: Request) -> TranslatedFile:
        """Translate a document, and return the address of the translation."""
        job = await uploads.start(request)
        leaving = asyncio.create_task(disconnected(request))
        try:
            tasks = {leaving, job.task} if job.task else {leaving}
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            if job.is_active:
                jobs.delete(job)
        if job.state != "done":
            raise ApiError(422, "failed", job.error or "the translation was canceled")
        url = request.url_for("download_file", name=job.file_name)
        return TranslatedFile(translatedFileUrl=str(url))

    @libretranslate.get(
        "/download_file/{name}",
        responses={200: CONTENT, **{status: PLAIN_ERRORS[status] for status in (404, 409, 422)}},
        response_class=Response,
    )
    async def download_file(name: str) -> Response:
        """Return a translated document. Its address is a secret of the client."""
        return _download(jobs.find(name.partition(".")[0]))

    router.include_router(libretranslate)
    return router


class _Uploads:
    """Reads documents that clients send."""

    def __init__(
        self, guard: RequestGuard, jobs: DocumentJobs, detection: LanguageDetection
    ) -> None:
        self._guard = guard
        self._jobs = jobs
        self._detection = detection
        self._active: Counter[Client] = Counter()
        """Uploads by client, or by address if the key is in the form."""
        self._refused: TTLCache[Client, float] = TTLCache(MAX_CLIENTS, REFUSED_SECONDS)
        """The time until which a client waits, because a document was above its rate."""
        size = guard.settings.max_document_bytes
        self._limits = Limits(
            bytes=size,
            unpacked_bytes=UNPACKED_RATIO * size,
            characters=guard.settings.max_document_chars,
        )

    async def start(self, request: Request) -> DocumentJob:
        """Check the request and the document, and start to translate it.

        Raises:
            ApiError: The document is invalid, or a limit is exceeded.
        """
        guard = self._guard
        guard.check_origin(request)
        guard.check_quota(request)
        if checked_content_type(request) != MULTIPART:
            raise ApiError(415, "unsupported_media_type", f"Content-Type: must be {MULTIPART}")
        with self._place(guard.rate_limiter.client(request)):
            async with request.form(max_files=1, max_fields=MAX_FIELDS) as form:
                file = form.get("file")
                fields = {name: value for name, value in form.items() if isinstance(value, str)}
                key = fields.get("api_key") or None
                guard.rate_limiter.check_key(request, key)
                if not isinstance(file, UploadFile):
                    raise ApiError(422, "invalid", "file: must be a file")
                client = guard.rate_limiter.client(request, key)
                self._check_wait(client)
                async with self._jobs.reading(client):
                    return await self._read_and_start(request, file, fields)

    @contextmanager
    def _place(self, client: Client) -> Iterator[None]:
        """Reserve a place for an upload.

        Raises:
            ApiError: There are too many uploads.
        """
        if self._active[client] >= MAX_UPLOADS_PER_CLIENT:
            message = f"more than {MAX_UPLOADS_PER_CLIENT} uploads at a time; wait for one of them"
            raise ApiError(429, "rate_limited", message, retry_after=10)
        if self._active.total() >= MAX_UPLOADS:
            raise OverloadedError(10)
        self._active[client] += 1
        try:
            yield
        finally:
            self._active -= Counter([client])

    async def _read_and_start(
        self, request: Request, file: UploadFile, fields: dict[str, str]
    ) -> DocumentJob:
        """Read a document, and start to translate it."""
        guard = self._guard
        suffix = suffix_of(file.filename or "")
        if suffix not in FORMATS:
            message = f"file: unknown format; its name must end with one of {' '.join(FORMATS)}"
            raise ApiError(422, "invalid", message)
        terms = fields.get("glossary", "")
        if len(terms) > MAX_GLOSSARY:
            raise ApiError(422, "invalid", f"glossary: longer than {MAX_GLOSSARY} characters")
        glossary = await in_thread(parse_glossary, terms.encode())
        content = await file.read()
        model, direction = await self._direction(fields, content, suffix)
        languages = Languages(direction.source, direction.target)
        document = await self._read(content, suffix, languages)
        options = Options(direction.source, glossary)
        sentences = await in_thread(count_sentences, document.segments, options)
        guard.record_size(request, await in_thread(_texts, document))
        client = self._charge(request, sentences, fields.get("api_key") or None)
        refund = partial(guard.refund, request)
        return self._jobs.start(client, suffix, document, model, direction, options, refund)

    def _check_wait(self, client: Client) -> None:
        """Refuse a document before it is read, in the time after one above the rate."""
        seconds = self._refused.get(client, 0.0) - time.monotonic()
        if seconds > 0:
            message = "the documents are above the rate limit; try again later"
            raise ApiError(429, "rate_limited", message, retry_after=seconds)

    def _charge(self, request: Request, sentences: int, key: str | None) -> Client:
        """Charge the client, or remember how long it has to wait."""
        try:
            return self._guard.charge(request, sentences, key)
        except ApiError as error:
            client = self._guard.rate_limiter.client(request, key)
            self._refused[client] = time.monotonic() + (error.retry_after or 0)
            raise

    async def _read(self, content: bytes, suffix: str, languages: Languages) -> Document:
        name = f"file{suffix}"
        return await in_thread(
            read_document, content, name, self._limits, languages, threads=reading_threads
        )

    async def _direction(
        self, fields: dict[str, str], content: bytes, suffix: str
    ) -> tuple[Model, Direction]:
        """Return the model and the languages of a document."""
        models = self._guard.models
        source, target = fields.get("source") or AUTO, fields.get("target") or None
        name = fields.get("model") or None
        if source == AUTO and target:
            models.find(None, target, name)  # refuses an unknown target before it is used
            draft = await self._read(content, suffix, Languages("", target))
            texts = await in_thread(_texts, draft)
            model, found, _ = await self._detection.find(texts, target, name)
            if found == target:
                message = f"file: is in {target} already; choose another target language"
                raise ApiError(422, "invalid", message)
        else:
            found = None if source == AUTO else source
            model = models.find(found, target, name)
        direction = model.direction(found, target)
        return model, direction or model.require_ready().directions[0]


def _texts(document: Document) -> list[str]:
    return [segment.text for segment in document.segments]


def _state(job: DocumentJob) -> DocumentState:
    return DocumentState(
        id=job.id,
        state=job.state,
        source=job.direction.source,
        target=job.direction.target,
        sentences=job.sentences,
        done=job.done,
        error=job.error or None,
        notices=job.notices.texts,
        expires_at=None if job.is_active else round(job.expires_at, 1),
    )


def _download(job: DocumentJob) -> Response:
    """Return the translation as a file that a browser saves and never shows."""
    if job.state != "done":
        raise ApiError(409, "not_ready", f"document: {job.state}; wait until it is done")
    return Response(
        job.content,
        media_type="application/octet-stream",
        headers={"Content-Disposition": f'attachment; filename="translation{job.suffix}"'},
    )
