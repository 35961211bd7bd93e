"""The API of our own."""

import time
from typing import Any

from fastapi import APIRouter, Depends, Request
from starlette.concurrency import run_in_threadpool

from app.engines.engine import Card, Pair, Translation
from app.errors import ApiError
from app.models.model import MOST_ALTERNATIVES, Aligned, Model
from app.server import schemas
from app.server.request_guard import Desk
from app.text.sentences import Span
from app.text.tokens import locate

ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": schemas.Error, "description": "the body is no JSON"},
    401: {"model": schemas.Error, "description": "an API key is needed"},
    404: {"model": schemas.Error, "description": "no such model"},
    408: {"model": schemas.Error, "description": "the body took too long to arrive"},
    413: {"model": schemas.Error, "description": "the body is too large"},
    415: {"model": schemas.Error, "description": "the body is not application/json"},
    422: {"model": schemas.Error, "description": "a field is not as it must be"},
    429: {"model": schemas.Error, "description": "too many characters a minute; Retry-After"},
    502: {"model": schemas.Error, "description": "TensorFlow Serving gave no sense"},
    503: {"model": schemas.Error, "description": "not ready or too busy; Retry-After"},
    504: {"model": schemas.Error, "description": "the deadline has passed"},
}


def routes(desk: Desk) -> APIRouter:
    """`/api/v1`."""
    router = APIRouter(prefix="/api/v1", tags=["translation"], dependencies=[Depends(desk.check)])
    api = Api(desk)
    router.post("/translate", responses=ERRORS)(api.translate)
    router.post("/align", responses=ERRORS)(api.align)
    router.post("/attention", responses=ERRORS)(api.attention)
    router.get("/models", responses={401: ERRORS[401]})(api.models)
    return router


class Api:
    """What is answered; the docstrings of the methods are in the API's own description."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def translate(
        self, request: Request, asked: schemas.TranslateRequest
    ) -> schemas.TranslateAnswer:
        """Translates texts."""
        begun = time.monotonic()
        texts = [asked.text] if isinstance(asked.text, str) else asked.text
        if asked.alternatives and asked.mode == "greedy":
            raise ApiError(422, "invalid", "alternatives: only mode beam has them")
        model = self._desk.models.find(asked.source, asked.target, asked.model)
        self._desk.accept(request, texts)
        work = model.translate(texts, asked.mode, asked.alternatives)
        found = await self._desk.answer(request, work)
        translations = list(map(_translation, found))
        return schemas.TranslateAnswer(
            translations=translations, **_answered(request, model, begun)
        )

    async def align(self, request: Request, asked: schemas.PairRequest) -> schemas.AlignAnswer:
        """Which words of a text each word of its translation comes from."""
        begun = time.monotonic()
        pair, model = self._take_in(request, asked)
        found = await self._desk.answer(request, model.align(pair))
        pairs = await run_in_threadpool(lambda: [_pair(pair, one) for one in found])
        return schemas.AlignAnswer(pairs=pairs, **_answered(request, model, begun))

    async def attention(
        self, request: Request, asked: schemas.AttentionRequest
    ) -> schemas.AttentionAnswer:
        """The attention weights of all heads of a layer while a translation is read."""
        begun = time.monotonic()
        pair, model = self._take_in(request, asked)
        found = await self._desk.answer(request, model.attention(pair))
        layers = found.weights[asked.kind]
        layer = len(layers) if asked.layer is None else asked.layer
        if layer > len(layers):
            raise ApiError(422, "invalid", f"layer: there are {len(layers)}")
        return schemas.AttentionAnswer(
            kind=asked.kind,
            layer=layer,
            layers=len(layers),
            rows=found.source if asked.kind == "encoder" else found.target,
            columns=found.target if asked.kind == "decoder" else found.source,
            weights=[[_rounded(row) for row in head] for head in layers[layer - 1]],
            **_answered(request, model, begun),
        )

    async def models(self) -> schemas.ModelsAnswer:
        """The models, their languages and limits."""
        models, settings = self._desk.models, self._desk.settings
        known = [_model_info(model, model.card) for model in models if model.card is not None]
        limits = schemas.RequestLimits(
            max_chars=settings.max_chars,
            max_texts=settings.max_texts,
            max_alternatives=MOST_ALTERNATIVES,
            deadline_seconds=settings.deadline,
            key_required=bool(settings.keys),
        )
        return schemas.ModelsAnswer(models=known, limits=limits)

    def _take_in(self, request: Request, asked: schemas.PairRequest) -> tuple[Pair, Model]:
        """A text and its translation, and the model that is to read them."""
        model = self._desk.models.find(asked.source, asked.target, asked.model)
        pair = Pair(asked.text, asked.translation)
        self._desk.accept_pair(request, pair)
        return pair, model


def _translation(one: Translation) -> schemas.Translation:
    return schemas.Translation(
        text=one.text,
        score=one.score,
        truncated=one.truncated,
        alternatives=[
            schemas.Alternative(text=text, score=score) for text, score in one.alternatives
        ],
    )


def _model_info(model: Model, card: Card) -> schemas.ModelInfo:
    return schemas.ModelInfo(
        name=model.name,
        version=model.version,
        source=card.source,
        target=card.target,
        ready=model.ready,
        limits=card.limits,
    )


def _answered(request: Request, model: Model, begun: float) -> dict[str, Any]:
    return {
        "model": schemas.ModelName(name=model.name, version=model.version),
        "took_ms": round(1000 * (time.monotonic() - begun)),
        "request_id": request.state.request_id,
    }


def _pair(pair: Pair, found: Aligned) -> schemas.SentencePair:
    """An alignment with the places of its pieces in the whole texts."""
    alignment = found.alignment
    sources = _placed(alignment.source, pair.text, found.source)
    targets = _placed(alignment.target, pair.translation, found.target)
    return schemas.SentencePair(
        source=[schemas.Piece(**place) for place in sources],
        target=[
            schemas.TargetPiece(**place, log_prob=round(log_prob, 4))
            for place, log_prob in zip(targets, alignment.log_probs, strict=True)
        ],
        attention=[_rounded(row) for row in alignment.attention],
    )


def _placed(pieces: list[str], text: str, span: Span) -> list[dict[str, Any]]:
    return [
        {"text": piece, "start": span.start + place.start, "end": span.start + place.end}
        for piece, place in zip(pieces, locate(pieces, span.of(text)), strict=True)
    ]


def _rounded(weights: list[float]) -> list[float]:
    return [round(weight, 4) for weight in weights]
