"""The interface between the application and a model: the signatures of an export."""

import json
import os
import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self

from pydantic import BaseModel, Field, field_validator, model_validator

# CPU_COUNT, _appearance(), and find_version() in in_process.py, repeat code of tfnmt. The
# application deliberately imports only tfnmt.litert, tfnmt.documents and tfnmt.errors: it must
# run where only an export is installed.
CPU_COUNT = len(os.sched_getaffinity(0))
"""CPUs that this process may use, which can be fewer than the machine has."""

Mode = Literal["beam", "greedy"]
Columns = Mapping[str, Sequence[str]]
"""Inputs or outputs of a signature by name, one row per text."""

# The names of signatures, their outputs and PADDING_SCORE repeat definitions of tfnmt. They are
# the interface of an export.
SIGNATURES = ("serving_default", "greedy", "nbest", "align", "attention", "info")
PADDING_SCORE = -1e9
"""Score of the entries that pad an n-best list of `nbest` to the length of the other lists."""

INVISIBLE = re.compile(r"[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]")
"""Characters without a glyph. Joiners are excluded, because they change the letters."""

TOKEN_OUTPUTS = ("source_tokens", "target_tokens", "source_length", "target_length")
"""Outputs that `align` and `attention` have in common."""


class Limits(BaseModel):
    """Limits of a model, in tokens including EOS."""

    max_source_length: int = Field(
        description="maximum number of source tokens per sentence; longer sentences are truncated"
    )
    max_translation_length: int = Field(
        description="maximum number of tokens in the translation of a sentence"
    )
    longest_trained: int = Field(
        description="maximum number of tokens per sentence in the training data"
    )
    beam_size: int = Field(description="number of hypotheses in beam search")


class Direction(NamedTuple):
    """The languages of a text and of its translation."""

    source: str
    target: str
    has_token: bool = False
    """Whether the model translates to several languages, and reads the target with each text."""


class ModelCard(BaseModel):
    """The fields of a model card that the application uses."""

    source: str
    target: str
    targets: list[str] = []
    """Target languages that the model reads with each text; none for a single direction."""
    directions: list[Direction] = []
    limits: Limits

    @field_validator("directions", mode="before")
    @classmethod
    def _parse(cls, names: list[str]) -> list[list[str]]:
        """Parse directions such as `en-de`."""
        return [name.split("-") for name in names]

    @model_validator(mode="after")
    def _complete(self) -> Self:
        """Add the only direction of an earlier export, and mark those of several."""
        directions = self.directions or [Direction(self.source, self.target)]
        has_token = bool(self.targets)
        self.directions = [each._replace(has_token=has_token) for each in directions]
        return self

    def find(self, source: str | None, target: str | None) -> Direction | None:
        """Return the first direction with these languages; None stands for any language."""
        found = (
            direction
            for direction in self.directions
            if source in (None, direction.source) and target in (None, direction.target)
        )
        return next(found, None)


class Alternative(NamedTuple):
    """A translation and its model score."""

    text: str
    score: float


class Translation(NamedTuple):
    """The best translation of a text, and alternatives in descending order of score."""

    text: str
    score: float
    truncated: bool
    alternatives: tuple[Alternative, ...] = ()


class Sentence(NamedTuple):
    """A text of one sentence and its direction; None for the only one of the model."""

    text: str
    direction: Direction | None = None


class Pair(NamedTuple):
    """A text, its translation and their direction; None for the only one of the model."""

    text: str
    translation: str
    direction: Direction | None = None


@dataclass(frozen=True)
class Alignment:
    """Attention of each target token to the source tokens, EOS included.

    The source of a model of several directions begins with the token of the target language.
    """

    source: list[str]  # S tokens
    target: list[str]  # T tokens
    attention: list[list[float]]  # [T, S]
    log_probs: list[float]  # [T]


@dataclass(frozen=True)
class Attention:
    """Attention weights of all layers and heads by kind, [L, H, rows, columns]."""

    source: list[str]
    target: list[str]
    weights: dict[str, list[list[list[list[float]]]]]


class Engine(ABC):
    """Runs the signatures of one model. Subclasses implement the call."""

    parallel_streams: int
    """Number of batches that the engine runs in parallel."""

    @abstractmethod
    async def call(self, signature: str, columns: Columns) -> dict[str, list[Any]]:
        """Run a signature.

        Args:
            signature: Name of the signature.
            columns: Inputs by name, one row per text.

        Returns:
            Outputs by name, one row per text.

        Raises:
            ApiError: The model cannot answer.
        """

    @abstractmethod
    async def version(self) -> str:
        """Return the version that answers now; raise UnavailableError if there is none."""

    @abstractmethod
    async def close(self) -> None:
        """Release the resources of the engine."""

    async def info(self) -> ModelCard:
        """Return the model card."""
        columns = await self.call("info", {"text": [""]})
        return ModelCard.model_validate(json.loads(columns["card"][0]))

    async def translate(
        self, sentences: Sequence[Sentence], mode: Mode, alternatives: int = 0
    ) -> list[Translation]:
        """Translate sentences, possibly to different languages.

        Args:
            sentences: The sentences.
            mode: The search algorithm.
            alternatives: Maximum number of alternatives per sentence. More than 0 always uses
                beam search.

        Returns:
            One translation per sentence.
        """
        inputs = _columns(sentences, "text")
        if alternatives:
            columns = await self.call("nbest", inputs)
            lists = zip(columns["translations"], columns["scores"], strict=True)
            return [
                _from_nbest(texts, scores, truncated, alternatives)
                for (texts, scores), truncated in zip(lists, columns["truncated"], strict=True)
            ]
        signature = "greedy" if mode == "greedy" else "serving_default"
        columns = await self.call(signature, inputs)
        rows = zip(columns["translation"], columns["score"], columns["truncated"], strict=True)
        return [Translation(*row) for row in rows]

    async def align(self, pairs: Sequence[Pair]) -> list[Alignment]:
        """Force-decode the translations and return their alignments, one per pair."""
        columns = await self.call("align", _columns(pairs, "text", "translation"))
        return [
            Alignment(
                source[:source_length],
                target[:target_length],
                [weights[:source_length] for weights in attention[:target_length]],
                log_probs[:target_length],
            )
            for source, target, source_length, target_length, attention, log_probs in _rows(
                columns, *TOKEN_OUTPUTS, "attention", "token_log_probs"
            )
        ]

    async def attention(self, pairs: Sequence[Pair]) -> list[Attention]:
        """Force-decode the translations and return their attention weights, one per pair."""
        columns = await self.call("attention", _columns(pairs, "text", "translation"))
        return [
            Attention(
                source[:source_length],
                target[:target_length],
                {
                    "encoder": _unpad(encoder, source_length, source_length),
                    "decoder": _unpad(decoder, target_length, target_length),
                    "cross": _unpad(cross, target_length, source_length),
                },
            )
            for source, target, source_length, target_length, encoder, decoder, cross in _rows(
                columns, *TOKEN_OUTPUTS, "encoder", "decoder", "cross"
            )
        ]


def _from_nbest(
    texts: list[str], scores: list[float], truncated: bool, alternatives: int
) -> Translation:
    """Return the best translation, and the alternatives that do not look the same."""
    distinct: dict[str, Alternative] = {}
    for text, score in zip(texts, scores, strict=True):
        if score > PADDING_SCORE:
            distinct.setdefault(_appearance(text), Alternative(text, score))
    best, *others = distinct.values()
    return Translation(*best, truncated, tuple(others[:alternatives]))


def _appearance(text: str) -> str:
    """Return a key that is the same for texts that look identical."""
    return " ".join(INVISIBLE.sub("", unicodedata.normalize("NFC", text)).split())


def _columns(rows: Sequence[Sentence] | Sequence[Pair], *names: str) -> Columns:
    """Return fields of the rows, and the target languages if the model reads them."""
    columns = {name: [getattr(row, name) for row in rows] for name in names}
    directions = [row.direction for row in rows if row.direction and row.direction.has_token]
    targets = {"target": [direction.target for direction in directions]} if directions else {}
    return columns | targets


def _rows(columns: dict[str, list[Any]], *names: str) -> Any:
    return zip(*(columns[name] for name in names), strict=True)


def _unpad(layers: Any, rows: int, columns: int) -> list[list[list[list[float]]]]:
    """Remove the padding from weights [L, H, padded rows, padded columns]."""
    return [[[row[:columns] for row in head[:rows]] for head in layer] for layer in layers]
