"""The one interface between the application and a model: the signatures of an export."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel

Mode = Literal["beam", "greedy"]
Columns = Mapping[str, Sequence[str]]
"""Inputs or outputs of a signature by name, a row per text."""

SIGNATURES = ("serving_default", "greedy", "nbest", "align", "attention", "info")
NOT_FOUND = -1e9
"""The score of what `nbest` did not find."""


class Limits(BaseModel):
    """In pieces, the end mark counted."""

    max_source_length: int
    max_translation_length: int
    longest_trained: int
    beam_size: int


class Card(BaseModel):
    """What a model says of itself, as far as the application needs it."""

    source: str
    target: str
    limits: Limits


class Alternative(NamedTuple):
    """A translation and the model's score of it."""

    text: str
    score: float


class Translation(NamedTuple):
    """The best translation of a text, and others, best first."""

    text: str
    score: float
    truncated: bool
    alternatives: tuple[Alternative, ...] = ()


class Pair(NamedTuple):
    """A text and a translation of it."""

    text: str
    translation: str


@dataclass(frozen=True)
class Alignment:
    """Which pieces of a text each piece of its translation looked at; end marks are included."""

    source: list[str]
    target: list[str]
    attention: list[list[float]]
    log_probs: list[float]


@dataclass(frozen=True)
class Attention:
    """The weights of every layer and head, [L][H][rows][columns], by kind."""

    source: list[str]
    target: list[str]
    weights: dict[str, list[list[list[list[float]]]]]


class Engine(ABC):
    """A model that can be asked; how, is up to those below."""

    lanes: int
    """How many batches it works on at a time."""

    @abstractmethod
    async def call(self, signature: str, columns: Columns) -> dict[str, list[Any]]:
        """Asks a signature: a column per input, a column per output."""

    @abstractmethod
    async def version(self) -> str:
        """Which version answers now; raises UnavailableError where none does."""

    @abstractmethod
    async def close(self) -> None:
        """Lets go of what it holds."""

    async def info(self) -> Card:
        """The model card."""
        columns = await self.call("info", {"text": [""]})
        return Card.model_validate(json.loads(columns["card"][0]))

    async def translate(
        self, texts: Sequence[str], mode: Mode, alternatives: int = 0
    ) -> list[Translation]:
        """One translation per text; alternatives come of a beam alone."""
        if alternatives:
            columns = await self.call("nbest", {"text": texts})
            found = zip(columns["translations"], columns["scores"], strict=True)
            return [
                _best(texts, scores, truncated, alternatives)
                for (texts, scores), truncated in zip(found, columns["truncated"], strict=True)
            ]
        signature = "greedy" if mode == "greedy" else "serving_default"
        columns = await self.call(signature, {"text": texts})
        rows = zip(columns["translation"], columns["score"], columns["truncated"], strict=True)
        return [Translation(*row) for row in rows]

    async def align(self, pairs: Sequence[Pair]) -> list[Alignment]:
        """The alignments of given translations."""
        columns = await self.call("align", _columns(pairs))
        return [
            Alignment(
                source[:sources],
                target[:targets],
                [weights[:sources] for weights in attention[:targets]],
                log_probs[:targets],
            )
            for source, target, sources, targets, attention, log_probs in _rows(
                columns,
                "source_pieces", "target_pieces", "source_length", "target_length",
                "attention", "token_log_probs",
            )
        ]  # fmt: skip

    async def attention(self, pairs: Sequence[Pair]) -> list[Attention]:
        """Attention weights while given translations are read."""
        columns = await self.call("attention", _columns(pairs))
        return [
            Attention(
                source[:sources],
                target[:targets],
                {
                    "encoder": _cut(encoder, sources, sources),
                    "decoder": _cut(decoder, targets, targets),
                    "cross": _cut(cross, targets, sources),
                },
            )
            for source, target, sources, targets, encoder, decoder, cross in _rows(
                columns,
                "source_pieces", "target_pieces", "source_length", "target_length",
                "encoder", "decoder", "cross",
            )
        ]  # fmt: skip


def _best(texts: list[str], scores: list[float], truncated: bool, alternatives: int) -> Translation:
    found = [Alternative(*one) for one in zip(texts, scores, strict=True) if one[1] > NOT_FOUND]
    return Translation(*found[0], truncated, tuple(found[1 : alternatives + 1]))


def _columns(pairs: Sequence[Pair]) -> Columns:
    return {
        "text": [pair.text for pair in pairs],
        "translation": [pair.translation for pair in pairs],
    }


def _rows(columns: dict[str, list[Any]], *names: str) -> Any:
    return zip(*(columns[name] for name in names), strict=True)


def _cut(layers: Any, rows: int, columns: int) -> list[list[list[list[float]]]]:
    """Without the padding."""
    return [[[row[:columns] for row in head[:rows]] for head in layer] for layer in layers]
