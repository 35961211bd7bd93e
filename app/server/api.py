"""Routes of the API under `/api/v1`."""

import time
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool

from app.engines.engine import ModelCard, Pair, Translation
from app.errors import ApiError
from app.models.model import MAX_ALTERNATIVES, AlignedSentence, Model
from app.models.segments import in_thread
from app.server import schemas
from app.server.detection import AUTO, LanguageDetection
from app.server.formatted import FormattedTexts
from app.server.request_guard import RequestGuard
from app.server.suggestions import Suggestions
from tfnmt.documents.detection import Guess, is_installed
from tfnmt.documents.formats import FORMATS
from tfnmt.documents.glossary import parse_glossary
from tfnmt.documents.sentences import Span
from tfnmt.documents.tokens import locate_tokens

ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": schemas.Error, "description": "the request body is not valid JSON"},
    401: {"model": schemas.Error, "description": "an API key is required"},
    404: {"model": schemas.Error, "description": "model not found"},
    408: {"model": schemas.Error, "description": "the request body took too long to arrive"},
    413: {"model": schemas.Error, "description": "the request body is too large"},
    415: {"model": schemas.Error, "description": "the content type is not application/json"},
    422: {"model": schemas.Error, "description": "a field is invalid or a limit is exceeded"},
    429: {"model": schemas.Error, "description": "rate limit exceeded; see Retry-After"},
    502: {"model": schemas.Error, "description": "TensorFlow Serving gave an invalid response"},
    503: {"model": schemas.Error, "description": "not ready or overloaded; see Retry-After"},
    504: {"model": schemas.Error, "description": "the deadline has passed"},
}

SUGGESTION_ERRORS: dict[int | str, dict[str, Any]] = {
    **{status: ERRORS[status] for status in ERRORS if status != 502},
    403: {"model": schemas.Error, "description": "the server keeps no corrections"},
    507: {"model": schemas.Error, "description": "the server keeps no more corrections"},
}


def routes(
    guard: RequestGuard, detection: LanguageDetection, suggestions: Suggestions
) -> APIRouter:
    """Return the routes under `/api/v1`."""
    router = APIRouter(prefix="/api/v1", tags=["translation"], route_class=_guarded_route(guard))
    api = Api(guard, detection, suggestions)
    router.post("/translate", responses=ERRORS, response_model_exclude_none=True)(api.translate)
    router.post("/align", responses=ERRORS)(api.align)
    router.post("/attention", responses=ERRORS)(api.attention)
    router.post("/suggestions", responses=SUGGESTION_ERRORS)(api.create_suggestion)
    router.get(
        "/models",
        responses={code: ERRORS[code] for code in (401, 429)},
        response_model_exclude_none=True,
    )(api.models)
    return router


def _guarded_route(guard: RequestGuard) -> type[APIRoute]:
    """Return a class of routes that check a request before its body is read."""

    class GuardedRequest(Request):
        async def json(self) -> Any:
            return await guard.parse_json(self)

    class GuardedRoute(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def check_and_handle(request: Request) -> Response:
                guard.check_request(request)
                return await handle(GuardedRequest(request.scope, request.receive))

            return check_and_handle

    return GuardedRoute


class Api:
    """Handlers of the routes. Their docstrings are published in the OpenAPI description."""

    def __init__(
        self, guard: RequestGuard, detection: LanguageDetection, suggestions: Suggestions
    ) -> None:
        self._guard = guard
        self._detection = detection
        self._suggestions = suggestions

    async def translate(
        self, request: Request, body: schemas.TranslateRequest
    ) -> schemas.TranslateResponse:
        """Translate one or more texts."""
        started = time.monotonic()
        texts = [body.text] if isinstance(body.text, str) else body.text
        if body.alternatives and body.mode == "greedy":
            raise ApiError(422, "invalid", "alternatives: requires mode beam")
        self._guard.check_texts(request, texts)
        model, source, guess = await self._find_model(body, texts)
        notices = None
        if guess and source == body.target:
            self._guard.charge(request, sentences=0)
            translations = [Translation(text, 0.0, False) for text in texts]
        elif body.is_plain:
            direction = model.direction(source, body.target)
            split_texts = model.split(texts, self._guard.settings.max_sentences, direction)
            client = self._guard.charge(request, sum(len(text.spans) for text in split_texts))
            work = model.translate(client, split_texts, body.mode, body.alternatives)
            translations = await self._guard.run(request, work)
        else:
            known = model.direction(source, body.target) or model.require_ready().directions[0]
            formatted = FormattedTexts(self._guard, request, model, known)
            translations, notices = await self._translate_formatted(formatted, body, texts)
        return schemas.TranslateResponse(
            translations=[_translation(translation) for translation in translations],
            notices=notices,
            detected_language=schemas.DetectedLanguage.of(guess) if guess else None,
            **_metadata(request, model, started),
        )

    async def _find_model(
        self, body: schemas.TranslateRequest, texts: list[str]
    ) -> tuple[Model, str | None, Guess | None]:
        """Return the model, the source language if it is known, and the detected language."""
        if body.source != AUTO:
            model = self._guard.models.find(body.source, body.target, body.model)
            return model, body.source, None
        if body.target is None:
            raise ApiError(422, "invalid", "target: required for the source auto")
        return await self._detection.find(texts, body.target, body.model)

    @staticmethod
    async def _translate_formatted(
        formatted: FormattedTexts, body: schemas.TranslateRequest, texts: list[str]
    ) -> tuple[list[Translation], list[str]]:
        """Translate HTML, or text with protected parts or a glossary."""
        if body.alternatives:
            raise ApiError(422, "invalid", "alternatives: only for plain text; omit it")
        glossary = await in_thread(parse_glossary, body.glossary.encode())
        return await formatted.translate(texts, body.format, glossary, body.mode)

    async def align(self, request: Request, body: schemas.PairRequest) -> schemas.AlignResponse:
        """Align the tokens of a translation with those of its text by cross-attention."""
        started = time.monotonic()
        pair, model = self._check_pair(request, body)
        spans = model.pair(pair, self._guard.settings.max_sentences)
        client = self._guard.charge(request, len(spans))
        sentences = await self._guard.run(request, model.align(client, pair, spans))
        pairs = await run_in_threadpool(
            lambda: [_sentence_pair(pair, sentence) for sentence in sentences]
        )
        return schemas.AlignResponse(pairs=pairs, **_metadata(request, model, started))

    async def attention(
        self, request: Request, body: schemas.AttentionRequest
    ) -> schemas.AttentionResponse:
        """Return the attention weights of all heads of a layer for a text and its translation."""
        started = time.monotonic()
        pair, model = self._check_pair(request, body)
        client = self._guard.charge(request, sentences=1)
        attention = await self._guard.run(request, model.attention(client, pair))
        layers = attention.weights[body.kind]
        layer = len(layers) if body.layer is None else body.layer
        if layer > len(layers):
            raise ApiError(422, "invalid", f"layer: the model has {len(layers)} layers")
        return schemas.AttentionResponse(
            kind=body.kind,
            layer=layer,
            layers=len(layers),
            rows=attention.source if body.kind == "encoder" else attention.target,
            columns=attention.target if body.kind == "decoder" else attention.source,
            weights=[[_rounded(row) for row in head] for head in layers[layer - 1]],
            **_metadata(request, model, started),
        )

    async def create_suggestion(
        self, request: Request, body: schemas.SuggestionRequest
    ) -> schemas.SuggestionResponse:
        """Keep a correction of a translation. The server must run with `--suggestions`."""
        model = self._guard.models.find(body.source, body.target, body.model)
        pair = Pair(body.text, body.translation, model.direction(body.source, body.target))
        await self._suggestions.add(request, model, pair, body.correction)
        return schemas.SuggestionResponse()

    async def models(self) -> schemas.ModelsResponse:
        """Return the served models with their languages, and the limits of a request."""
        settings = self._guard.settings
        limits = schemas.RequestLimits(
            max_chars=settings.max_chars,
            max_texts=settings.max_texts,
            max_sentences=settings.max_sentences,
            max_alternatives=MAX_ALTERNATIVES,
            max_glossary_chars=schemas.MAX_GLOSSARY,
            max_document_bytes=settings.max_document_bytes,
            deadline_seconds=settings.deadline,
            key_required=bool(settings.key_digests),
            suggestion_days=settings.suggestion_days if settings.suggestions else None,
        )
        models = [
            _model_info(model, model.card) for model in self._guard.models if model.card is not None
        ]
        return schemas.ModelsResponse(
            models=models,
            limits=limits,
            detection=is_installed(),
            document_formats=list(FORMATS),
            explorer=settings.explorer is not None,
        )

    def _check_pair(self, request: Request, body: schemas.PairRequest) -> tuple[Pair, Model]:
        """Check the limits; return the text with its translation, and the model to use."""
        model = self._guard.models.find(body.source, body.target, body.model)
        direction = model.direction(body.source, body.target)
        pair = Pair(body.text, body.translation, direction)
        self._guard.check_translations(request, body.text, body.translation)
        return pair, model


def _translation(translation: Translation) -> schemas.Translation:
    return schemas.Translation(
        text=translation.text,
        score=translation.score,
        truncated=translation.truncated,
        alternatives=[
            schemas.Alternative(text=text, score=score) for text, score in translation.alternatives
        ],
    )


def _model_info(model: Model, card: ModelCard) -> schemas.ModelInfo:
    directions = [
        schemas.Direction(source=source, target=target) for source, target, _ in card.directions
    ]
    return schemas.ModelInfo(
        name=model.name,
        version=model.version,
        source=card.source,
        target=card.target,
        directions=directions if card.targets else None,
        ready=model.ready,
        limits=card.limits,
    )


def _metadata(request: Request, model: Model, started: float) -> dict[str, Any]:
    return {
        "model": schemas.ModelName(name=model.name, version=model.version),
        "took_ms": round(1000 * (time.monotonic() - started)),
        "request_id": request.state.request_id,
    }


def _sentence_pair(pair: Pair, sentence: AlignedSentence) -> schemas.SentencePair:
    """Add to an alignment the positions of its tokens in the whole texts."""
    alignment = sentence.alignment
    sources = _locate(alignment.source, pair.text, sentence.source)
    targets = _locate(alignment.target, pair.translation, sentence.target)
    return schemas.SentencePair(
        source=[schemas.Token(**token) for token in sources],
        target=[
            schemas.TargetToken(**token, log_prob=round(log_prob, 4))
            for token, log_prob in zip(targets, alignment.log_probs, strict=True)
        ],
        attention=[_rounded(row) for row in alignment.attention],
    )


def _locate(tokens: list[str], text: str, sentence: Span) -> list[dict[str, Any]]:
    spans = locate_tokens(tokens, sentence.of(text))
    return [
        {"text": token, "start": sentence.start + span.start, "end": sentence.start + span.end}
        for token, span in zip(tokens, spans, strict=True)
    ]


def _rounded(weights: list[float]) -> list[float]:
    return [round(weight, 4) for weight in weights]
