"""The part of LibreTranslate's API that its clients need to translate."""

from typing import Any, Literal
from urllib.parse import parse_qs

from babel import Locale, UnknownLocaleError
from fastapi import APIRouter, Request
from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from python_multipart.multipart import parse_options_header

from app.engines.engine import Translation
from app.errors import ApiError
from app.models.model import MOST_ALTERNATIVES
from app.server.request_guard import Desk
from app.server.schemas import PlainError, Text

ANY = "auto"

STATUSES = (400, 401, 403, 408, 413, 415, 422, 429, 502, 503, 504)
ERRORS: dict[int | str, dict[str, Any]] = {status: {"model": PlainError} for status in STATUSES}

UTF_8 = b"utf-8"

URL_ENCODED = "application/x-www-form-urlencoded"
FORMS = (URL_ENCODED, "multipart/form-data")

MOST_FIELDS = 100
"""Fields of a form: `q` may come again and again."""


class TranslateRequest(BaseModel):
    """As JSON or as a form."""

    q: Text | list[Text] = Field(examples=["A man sleeps."])
    source: str = Field(ANY, examples=["en"])
    target: str = Field(examples=["de"])
    format: Literal["text"] = "text"
    alternatives: int = Field(0, ge=0)
    api_key: str = ""


class TranslateAnswer(BaseModel):
    """A list where a list was sent."""

    translatedText: str | list[str]  # noqa: N815  LibreTranslate's name
    alternatives: list[str] | list[list[str]] | None = None


class Language(BaseModel):
    """A language that can be translated, and into which."""

    code: str
    name: str
    targets: list[str]


REQUEST = TypeAdapter(TranslateRequest)

BODY = {
    "requestBody": {
        "required": True,
        "content": {
            kind: {"schema": TranslateRequest.model_json_schema()}
            for kind in ("application/json", *FORMS)
        },
    }
}


def routes(desk: Desk) -> APIRouter:
    """`/translate`, `/languages` and `/frontend/settings`."""
    router = APIRouter(tags=["LibreTranslate"])

    @router.post(
        "/translate", responses=ERRORS, openapi_extra=BODY, response_model_exclude_none=True
    )
    async def translate(request: Request) -> TranslateAnswer:
        """Translates a text or a list of texts."""
        _refuse_strangers(request, desk.settings.allowed_origins)
        asked = await _read(request)
        texts = [asked.q] if isinstance(asked.q, str) else asked.q
        key = asked.api_key or None
        desk.clients.check(request, key)
        model = desk.models.find(None if asked.source == ANY else asked.source, asked.target)
        desk.accept(request, texts, key)
        alternatives = min(asked.alternatives, MOST_ALTERNATIVES)
        found = await desk.answer(request, model.translate(texts, "beam", alternatives))
        return _answer(found, single=isinstance(asked.q, str), listed=bool(alternatives))

    @router.get("/languages")
    async def languages() -> list[Language]:
        """The languages that can be translated."""
        targets: dict[str, list[str]] = {}
        for model in desk.models:
            if model.card is not None and model.card.target not in targets.get(
                model.card.source, []
            ):
                targets.setdefault(model.card.source, []).append(model.card.target)
        named = sorted({*targets, *(target for found in targets.values() for target in found)})
        return [
            Language(code=code, name=_name(code), targets=targets.get(code, [])) for code in named
        ]

    @router.get("/frontend/settings")
    async def settings() -> dict[str, Any]:
        """What LibreTranslate tells its page."""
        cards = [model.card for model in desk.models if model.card is not None]
        return {
            "apiKeys": bool(desk.settings.keys),
            "charLimit": desk.settings.max_chars,
            "frontendTimeout": 500,
            "keyRequired": bool(desk.settings.keys),
            "language": {
                "source": {"code": cards[0].source, "name": _name(cards[0].source)},
                "target": {"code": cards[0].target, "name": _name(cards[0].target)},
            }
            if cards
            else {},
            "suggestions": False,
            "supportedFilesFormat": [],
        }

    return router


def _refuse_strangers(request: Request, allowed_origins: tuple[str, ...]) -> None:
    """Raises where a page of another site asks: browsers let it send forms, and say from where.

    Sec-Fetch-Site they say to addresses of https and of this machine alone.
    """
    headers = request.headers
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    no_page = origin is None and site is None
    host = (origin or "").partition("://")[2]
    own = no_page or site in ("same-origin", "none") or host == headers.get("host")
    if not own and origin not in allowed_origins:
        raise ApiError(403, "forbidden", "pages of other sites may not ask; see --allow_origin")


async def _read(request: Request) -> TranslateRequest:
    content_type, options = parse_options_header(request.headers.get("content-type"))
    kind = content_type.decode("latin-1")
    if kind in FORMS:
        # Else the client would choose the codec, of those there are slow ones.
        if options.get(b"charset", UTF_8).lower() != UTF_8:
            raise ApiError(415, "unsupported_media_type", "send the form as utf-8")
        found = await _url_encoded(request) if kind == URL_ENCODED else await _multipart(request)
        fields: Any = {name: own[0] if len(own) == 1 else own for name, own in found.items()}
    elif kind == "application/json":
        try:
            fields = await request.json()
        except (ValueError, RecursionError) as error:
            raise ApiError(400, "malformed", "the body is no JSON") from error
    else:
        raise ApiError(415, "unsupported_media_type", "send application/json or a form")
    try:
        return REQUEST.validate_python(fields)
    except ValidationError as error:
        first = error.errors()[0]
        field = first["loc"][0] if first["loc"] else "body"
        raise ApiError(400, "invalid", f"{field}: {first['msg']}") from error


async def _url_encoded(request: Request) -> dict[str, list[Any]]:
    """The fields of a form; what is not ASCII may stand there as it is, which clients do send."""
    try:
        return parse_qs(
            (await request.body()).decode(), keep_blank_values=True, errors="strict",
            max_num_fields=MOST_FIELDS,
        )  # fmt: skip
    except UnicodeDecodeError as error:
        raise ApiError(400, "malformed", "the form is not UTF-8") from error
    except ValueError as error:
        message = f"the form has more than {MOST_FIELDS} fields"
        raise ApiError(400, "malformed", message) from error


async def _multipart(request: Request) -> dict[str, list[Any]]:
    async with request.form(max_files=0, max_fields=MOST_FIELDS) as form:
        return {name: form.getlist(name) for name in form}


def _answer(found: list[Translation], single: bool, listed: bool) -> TranslateAnswer:
    texts = [one.text for one in found]
    others = [[other.text for other in one.alternatives] for one in found]
    if single:
        return TranslateAnswer(translatedText=texts[0], alternatives=others[0] if listed else None)
    return TranslateAnswer(translatedText=texts, alternatives=others if listed else None)


def _name(code: str) -> str:
    """In English; the code itself where it is nobody's."""
    try:
        return Locale.parse(code, sep="-").get_display_name("en") or code
    except (ValueError, UnknownLocaleError):
        return code
