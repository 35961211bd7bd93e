"""The translation routes of LibreTranslate's API, for its clients."""

from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import parse_qs

from babel import Locale, UnknownLocaleError
from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, BeforeValidator, Field, ValidationError
from python_multipart.multipart import parse_options_header

from app.engines.engine import Pair, Translation
from app.errors import ApiError
from app.models.model import MAX_ALTERNATIVES
from app.server.detection import AUTO, LanguageDetection
from app.server.error_responses import describe
from app.server.formatted import FormattedTexts
from app.server.request_guard import JSON, RequestGuard
from app.server.schemas import (
    DetectedLanguage,
    PlainError,
    RequestBody,
    SuggestionResponse,
    Texts,
)
from app.server.suggestions import Suggestions
from tfnmt.documents.detection import Guess
from tfnmt.documents.formats import FORMATS

STATUSES = (400, 403, 408, 413, 415, 429, 502, 503, 504)
ERRORS: dict[int | str, dict[str, Any]] = {status: {"model": PlainError} for status in STATUSES}

CODE_STATUSES = {"unauthorized": 400, "invalid_key": 403}
"""LibreTranslate's statuses by the code of an error."""

UTF_8 = b"utf-8"

URL_ENCODED = "application/x-www-form-urlencoded"
FORMS = (URL_ENCODED, "multipart/form-data")

MAX_FORM_FIELDS = 100
"""Maximum fields of a form, which may repeat `q`."""


MAX_CONTENT_TYPE = 300
"""Maximum characters of a content type: the time to parse one grows with its parameters. The
boundary of a form has at most 70 characters."""


Format = Annotated[
    Literal["text", "html"], BeforeValidator(lambda value: "text" if value in (None, "") else value)
]
"""The format of a text. Some clients send null or an empty string."""


class LibreTranslateRequest(RequestBody):
    """Texts to translate, as JSON or as a form."""

    q: str | Texts = Field(description="a text or a list of texts", examples=["A man sleeps."])
    source: str = Field(
        AUTO,
        description="language code of the text; `auto` detects it",
        examples=["en"],
    )
    target: str = Field(description="language code of the translation", examples=["de"])
    format: Format = Field("text", description="format of the text; empty means text")
    alternatives: int = Field(
        0,
        description=f"number of alternatives; at most {MAX_ALTERNATIVES} are returned, "
        "none for a negative number",
    )
    api_key: str = Field("", description="API key, if the server requires one")


class LibreTranslateResponse(BaseModel):
    """One translation, or a list if the request had a list."""

    translatedText: str | list[str] = Field(  # noqa: N815  LibreTranslate's name
        description="the translation of each text"
    )
    alternatives: list[str] | list[list[str]] | None = Field(
        None, description="alternative translations of each text, if requested"
    )
    detectedLanguage: DetectedLanguage | list[DetectedLanguage] | None = Field(  # noqa: N815
        None, description="language of the text, for the source `auto`"
    )


class DetectRequest(RequestBody):
    """A text whose language is detected, as JSON or as a form."""

    q: str | Texts = Field(description="a text", examples=["A man sleeps."])
    api_key: str = Field("", description="API key, if the server requires one")


class SuggestRequest(RequestBody):
    """A text and a better translation of it, as JSON or as a form."""

    q: str = Field(description="the text", examples=["A man sleeps."])
    s: str = Field(description="the better translation", examples=["Ein Mann schläft."])
    source: str = Field(
        AUTO, description="language code of the text; `auto` detects it", examples=["en"]
    )
    target: str = Field(description="language code of the translation", examples=["de"])
    api_key: str = Field("", description="API key, if the server requires one")


Body = TypeVar("Body", bound=RequestBody)


class Language(BaseModel):
    """A language and the languages that it can be translated into."""

    code: str = Field(description="language code")
    name: str = Field(description="English name of the language")
    targets: list[str] = Field(description="codes of the target languages")


def _body(schema: str) -> dict[str, Any]:
    """Return the description of a body. FastAPI would read only one of its formats."""
    content = {JSON: {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
    return {"requestBody": {"required": True, "content": content}}


BODY = _body("LibreTranslateRequest")
DETECT_BODY = _body("DetectRequest")
SUGGEST_BODY = _body("SuggestRequest")


def routes(
    guard: RequestGuard, detection: LanguageDetection, suggestions: Suggestions
) -> APIRouter:
    """Return the routes for texts and languages, and `/frontend/settings`."""
    router = APIRouter(tags=["LibreTranslate"], route_class=LibreTranslateRoute)

    @router.post(
        "/translate", responses=ERRORS, openapi_extra=BODY, response_model_exclude_none=True
    )
    async def libretranslate(request: Request) -> LibreTranslateResponse:
        """Translate a text or a list of texts. Forms and query parameters are accepted as well."""
        guard.check_origin(request)
        guard.check_quota(request)
        body = await _parse_body(request, guard, LibreTranslateRequest)
        texts = [body.q] if isinstance(body.q, str) else body.q
        key = body.api_key or request.query_params.get("api_key")
        guard.rate_limiter.check_key(request, key)
        guard.check_each_text(request, texts)
        guess = None
        source: str | None = body.source
        if source == AUTO:
            model, source, guess = await detection.find(texts, body.target)
        else:
            model = guard.models.find(source, body.target)
        alternatives = max(0, min(body.alternatives, MAX_ALTERNATIVES))
        if source == body.target:  # detected: the text is in the target language
            guard.charge(request, 0, key)
            translations = [Translation(text, 0.0, False) for text in texts]
        elif body.format == "html":
            first = model.require_ready().directions[0]
            known = model.direction(source, body.target) or first
            formatted = FormattedTexts(guard, request, model, known, key)
            translations, _ = await formatted.translate(texts, "html")
        else:
            direction = model.direction(source, body.target)
            split_texts = model.split(texts, guard.settings.max_sentences, direction)
            client = guard.charge(request, sum(len(text.spans) for text in split_texts), key)
            work = model.translate(client, split_texts, "beam", alternatives)
            translations = await guard.run(request, work)
        return _response(translations, isinstance(body.q, str), bool(alternatives), guess)

    @router.post("/detect", responses=ERRORS, openapi_extra=DETECT_BODY)
    async def detect(request: Request) -> list[DetectedLanguage]:
        """Return the possible languages of a text, the most probable first."""
        guard.check_origin(request)
        guard.check_quota(request)
        body = await _parse_body(request, guard, DetectRequest)
        key = body.api_key or request.query_params.get("api_key")
        guard.rate_limiter.check_key(request, key)
        texts = [body.q] if isinstance(body.q, str) else body.q
        guard.check_each_text(request, texts)
        guard.charge(request, 0, key)
        return [DetectedLanguage.of(guess) for guess in await detection.detect(texts)]

    @router.post(
        "/suggest",
        responses=ERRORS | {507: {"model": PlainError}},
        openapi_extra=SUGGEST_BODY,
    )
    async def suggest(request: Request) -> SuggestionResponse:
        """Keep a correction of a translation. The server must run with `--suggestions`."""
        guard.check_origin(request)
        guard.check_quota(request)
        body = await _parse_body(request, guard, SuggestRequest)
        key = body.api_key or request.query_params.get("api_key")
        guard.rate_limiter.check_key(request, key)
        source: str | None = body.source
        if source == AUTO:
            model, source, _ = await detection.find([body.q], body.target)
        else:
            model = guard.models.find(source, body.target)
        direction = model.direction(source, body.target)
        if direction is None:
            message = "source, target: the text is in the target language"
            raise ApiError(422, "unsupported_languages", message)
        await suggestions.add(request, model, Pair(body.q, "", direction), body.s, key)
        return SuggestionResponse()

    @router.get("/languages")
    async def languages() -> list[Language]:
        """Return the languages of all models."""
        cards = [model.card for model in guard.models if model.card is not None]
        targets: dict[str, list[str]] = {}
        for source, target, _ in (direction for card in cards for direction in card.directions):
            if target not in targets.setdefault(source, []):
                targets[source].append(target)
        codes = sorted({*targets, *(target for group in targets.values() for target in group)})
        return [
            Language(code=code, name=_language_name(code), targets=targets.get(code, []))
            for code in codes
        ]

    @router.get("/frontend/settings")
    async def frontend_settings() -> dict[str, Any]:
        """Return the settings that LibreTranslate's web page reads."""
        cards = [model.card for model in guard.models if model.card is not None]
        key_required = bool(guard.settings.key_digests)
        languages: dict[str, Any] = {}
        if cards:
            languages = {
                "source": {"code": cards[0].source, "name": _language_name(cards[0].source)},
                "target": {"code": cards[0].target, "name": _language_name(cards[0].target)},
            }
        return {
            "apiKeys": key_required,
            "charLimit": guard.settings.max_chars,
            "frontendTimeout": 500,
            "keyRequired": key_required,
            "language": languages,
            "suggestions": guard.settings.suggestions is not None,
            "filesTranslation": True,
            "supportedFilesFormat": list(FORMATS),
        }

    return router


class LibreTranslateRoute(APIRoute):
    """Converts the statuses of errors to those that LibreTranslate's clients know."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of a request, with the statuses converted."""
        handle = super().get_route_handler()

        async def handle_with_statuses(request: Request) -> Response:
            try:
                return await handle(request)
            except ApiError as error:
                error.status = CODE_STATUSES.get(error.code, error.status)
                if error.status == 422:
                    error.status = 400
                raise

        return handle_with_statuses


def checked_content_type(request: Request) -> str:
    """Return the content type of a request.

    A form must be in UTF-8: otherwise the client could choose the codec, and some codecs are slow.

    Raises:
        ApiError: The content type is too long, or the charset is not supported.
    """
    value = request.headers.get("content-type", "")
    if len(value) > MAX_CONTENT_TYPE:
        message = f"Content-Type: longer than {MAX_CONTENT_TYPE} characters"
        raise ApiError(415, "unsupported_media_type", message)
    header, options = parse_options_header(value)
    content_type = header.decode("latin-1")
    if content_type != JSON and options.get(b"charset", UTF_8).lower() != UTF_8:
        raise ApiError(415, "unsupported_media_type", "charset: must be utf-8")
    return content_type


async def _parse_body(request: Request, guard: RequestGuard, body: type[Body]) -> Body:
    content_type = checked_content_type(request)
    if content_type == JSON:
        try:
            fields = await guard.parse_json(request)
        except ValueError as error:
            raise ApiError(400, "malformed", "the request body is not valid JSON") from error
    else:
        fields = await _parse_query_and_form(request, content_type, await guard.read_body(request))
    try:
        return body.model_validate(fields)
    except ValidationError as error:
        raise ApiError(400, "invalid", describe(error.errors())) from error


async def _parse_query_and_form(request: Request, content_type: str, body: bytes) -> dict[str, Any]:
    """Return the fields of the query and of the form, if there is one. A form has precedence."""
    parsed = _url_encoded(_decode(request.scope["query_string"]))
    if content_type in FORMS:
        parsed |= await _parse_form(request, content_type, body)
    elif content_type or body:
        message = f"Content-Type: must be {JSON} or a form"
        raise ApiError(415, "unsupported_media_type", message)
    return {name: values[0] if len(values) == 1 else values for name, values in parsed.items()}


async def _parse_form(request: Request, content_type: str, body: bytes) -> dict[str, list[Any]]:
    """Return the values of each field. Starlette would read other encodings as Latin-1."""
    text = _decode(body)
    if content_type == URL_ENCODED:
        return _url_encoded(text)
    async with request.form(max_files=0, max_fields=MAX_FORM_FIELDS) as form:
        return {name: form.getlist(name) for name in form}


def _decode(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ApiError(400, "malformed", "the form is not valid UTF-8") from error


def _url_encoded(text: str) -> dict[str, list[Any]]:
    """Parse a url-encoded form.

    Unescaped non-ASCII characters are accepted, because some clients send them.
    """
    try:
        return parse_qs(
            text, keep_blank_values=True, errors="strict", max_num_fields=MAX_FORM_FIELDS
        )
    except UnicodeDecodeError as error:
        raise ApiError(400, "malformed", "the form is not valid UTF-8") from error
    except ValueError as error:
        message = f"the form has too many fields; the limit is {MAX_FORM_FIELDS}"
        raise ApiError(400, "malformed", message) from error


def _response(
    translations: list[Translation], single: bool, with_alternatives: bool, guess: Guess | None
) -> LibreTranslateResponse:
    texts = [translation.text for translation in translations]
    alternatives = [
        [alternative.text for alternative in translation.alternatives]
        for translation in translations
    ]
    detected = [DetectedLanguage.of(guess)] * len(texts) if guess else None
    if single:
        return LibreTranslateResponse(
            translatedText=texts[0],
            alternatives=alternatives[0] if with_alternatives else None,
            detectedLanguage=detected[0] if detected else None,
        )
    return LibreTranslateResponse(
        translatedText=texts,
        alternatives=alternatives if with_alternatives else None,
        detectedLanguage=detected,
    )


def _language_name(code: str) -> str:
    """Return the English name of a language, or the code if it is unknown."""
    try:
        return Locale.parse(code.replace("_", "-"), sep="-").get_display_name("en") or code
    except (ValueError, UnknownLocaleError):
        return code
