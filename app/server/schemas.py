"""Request and response bodies of the API."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from app.engines.engine import Limits, Mode
from app.models.model import MAX_ALTERNATIVES
from app.settings import MAX_TEXTS
from tfnmt.documents.detection import Guess

LanguageCode = Annotated[str, Field(min_length=1, max_length=35)]
"""A language code such as en or pt-BR."""

MAX_GLOSSARY = 20_000
"""Maximum characters of a glossary."""

AttentionKind = Literal["encoder", "decoder", "cross"]


Texts = Annotated[list[str], Field(min_length=1, max_length=MAX_TEXTS, fail_fast=True)]
"""A list of texts. Its validation stops at the first error: only that one is reported."""

MAX_FIELDS = 50
"""Maximum number of fields of a request, unknown ones included."""


class RequestBody(BaseModel):
    """Base class of request bodies."""

    @model_validator(mode="before")
    @classmethod
    def _check_fields(cls, fields: Any) -> Any:
        """Refuse a large object before an error is created for each of its unknown fields."""
        if not isinstance(fields, dict):
            raise PydanticCustomError("not_an_object", "must be an object")
        if len(fields) > MAX_FIELDS:
            raise PydanticCustomError(
                "too_many_fields", "more than {limit} fields", {"limit": MAX_FIELDS}
            )
        return fields


class ModelSelection(RequestBody):
    """Fields that select the model for a request."""

    model_config = ConfigDict(extra="forbid", strict=True)

    source: LanguageCode | None = Field(
        None,
        description="language code of the text; by default that of the first matching model",
        examples=["en"],
    )
    target: LanguageCode | None = Field(
        None,
        description="language code of the translation; by default that of the first matching model",
        examples=["de"],
    )
    model: str | None = Field(
        None, description="name of the model; by default the first model for the languages"
    )


class TranslateRequest(ModelSelection):
    """Texts to translate. Line breaks and white space are kept."""

    source: LanguageCode | None = Field(
        None,
        description="language code of the text; `auto` detects it and requires `target`; by "
        "default that of the first matching model",
        examples=["en"],
    )
    text: str | Texts = Field(
        description="a text or a list of texts, of any number of sentences",
        examples=["A man sleeps.", ["A man sleeps.", "A dog runs."]],
    )
    mode: Mode = Field(
        "beam",
        description="search algorithm: `beam` gives better translations, `greedy` is faster",
    )
    alternatives: int = Field(
        0,
        ge=0,
        le=MAX_ALTERNATIVES,
        description="maximum number of alternative translations per text; requires mode `beam` and "
        "plain text without `protect` and `glossary`",
    )
    format: Literal["text", "html"] = Field(
        "text",
        description="`html` keeps tags around their words, and does not translate code and scripts",
    )
    protect: bool = Field(
        False,
        description="whether URLs, e-mail addresses, measures, code and placeholders come back "
        "unchanged; always true for HTML",
    )
    glossary: str = Field(
        "",
        max_length=MAX_GLOSSARY,
        description="required translations: lines of source term, tab, target term",
        examples=["ticket\tFahrschein"],
    )

    @property
    def is_plain(self) -> bool:
        """Whether the model reads the text unchanged."""
        return not (self.format == "html" or self.protect or self.glossary)


class PairRequest(ModelSelection):
    """A text and its translation, which need not come from a model."""

    text: str = Field(description="the source text", examples=["A man sleeps."])
    translation: str = Field(
        description="its translation; it may be twice as long as a text may be",
        examples=["Ein Mann schläft."],
    )


class AttentionRequest(PairRequest):
    """A sentence and its translation. Each is truncated to 64 tokens."""

    kind: AttentionKind = Field(
        "cross",
        description="self-attention of the `encoder` or `decoder`, or `cross`-attention from the "
        "translation to the text",
    )
    layer: int | None = Field(
        None, ge=1, description="number of the layer, from 1; the last layer by default"
    )


class SuggestionRequest(PairRequest):
    """A text, its translation, and a better one."""

    correction: str = Field(
        description="the better translation; it may be twice as long as a text may be",
        examples=["Ein Mann schläft."],
    )


class SuggestionResponse(BaseModel):
    """The correction is kept."""

    success: Literal[True] = Field(True, description="always true, as in LibreTranslate")


class Alternative(BaseModel):
    """An alternative translation."""

    text: str = Field(description="the translation")
    score: float = Field(
        description="log probability divided by the length penalty, averaged over the sentences; "
        "it ranks translations and is not a probability of being correct"
    )


class Translation(Alternative):
    """The best translation of a text."""

    truncated: bool = Field(
        description="whether a sentence exceeded the maximum length of the model and was truncated"
    )
    alternatives: list[Alternative] = Field(
        description="alternative translations in descending order of score"
    )


class ModelName(BaseModel):
    """The model that answered."""

    name: str = Field(description="name of the model")
    version: str = Field(description="version of the model")


class ResponseMetadata(BaseModel):
    """Fields of every response of a model."""

    model: ModelName = Field(description="the model that answered")
    took_ms: int = Field(description="processing time in milliseconds, including time in the queue")
    request_id: str = Field(description="id of the request, as in the log and in X-Request-Id")


class DetectedLanguage(BaseModel):
    """A possible language of a text."""

    language: str = Field(description="language code")
    confidence: float = Field(description="confidence in percent")

    @classmethod
    def of(cls, guess: Guess) -> "DetectedLanguage":
        """Return the language of a guess."""
        return cls(language=guess.language, confidence=round(100 * guess.confidence, 1))


class TranslateResponse(ResponseMetadata):
    """One translation per text."""

    translations: list[Translation] = Field(description="translations in the order of the texts")
    notices: list[str] | None = Field(
        None,
        description="with HTML, `protect` or `glossary`: protected parts that the model lost, so "
        "that the text around them was translated in parts, and terms that were not replaced",
    )
    detected_language: DetectedLanguage | None = Field(
        None,
        description="language of the texts, for the source `auto`; texts in the target language "
        "come back unchanged",
    )


class Token(BaseModel):
    """A subword token and its position in the whole text."""

    text: str = Field(
        description="the token; `▁` stands for a space, `</s>` for EOS, and `<2de>` for the target "
        "language in a model of several directions"
    )
    start: int = Field(description="position of its first character, in code points")
    end: int = Field(description="position after its last character, in code points")


class TargetToken(Token):
    """A token of the translation."""

    log_prob: float = Field(description="log probability of the token")


class SentencePair(BaseModel):
    """A sentence and its translation."""

    source: list[Token] = Field(description="tokens of the sentence, including EOS")
    target: list[TargetToken] = Field(description="tokens of the translation, including EOS")
    attention: list[list[float]] = Field(
        description="attention weights: one row per target token, one column per source token"
    )


class AlignResponse(ResponseMetadata):
    """Alignment of a text with its translation."""

    pairs: list[SentencePair] = Field(
        description="one entry per sentence; per line or for the whole text if the numbers of "
        "sentences differ"
    )


class AttentionResponse(ResponseMetadata):
    """Attention weights of all heads of a layer."""

    kind: AttentionKind = Field(description="kind of attention, as in the request")
    layer: int = Field(description="number of the layer, from 1")
    layers: int = Field(description="number of layers of the model")
    rows: list[str] = Field(description="tokens that attend")
    columns: list[str] = Field(description="tokens that are attended to")
    weights: list[list[list[float]]] = Field(
        description="attention weights, `[heads][rows][columns]`; each row sums to 1"
    )


class Direction(BaseModel):
    """A direction of a model."""

    source: str = Field(description="source language code")
    target: str = Field(description="target language code")


class ModelInfo(ModelName):
    """A served model."""

    source: str = Field(description="source language code of the first direction")
    target: str = Field(description="target language code of the first direction")
    directions: list[Direction] | None = Field(
        None, description="all directions of a model of several; absent for a single direction"
    )
    ready: bool = Field(description="whether the model can answer now")
    limits: Limits = Field(description="limits of the model")


class RequestLimits(BaseModel):
    """Limits of a request."""

    max_chars: int = Field(description="maximum characters of all texts of a request")
    max_texts: int = Field(description="maximum number of texts")
    max_sentences: int = Field(description="maximum number of sentences in all texts of a request")
    max_alternatives: int = Field(description="maximum number of alternatives per text")
    max_glossary_chars: int = Field(description="maximum characters of a glossary")
    max_document_bytes: int = Field(description="maximum size of a document")
    deadline_seconds: float = Field(description="maximum time to answer a request")
    key_required: bool = Field(description="whether requests need an API key")
    suggestion_days: int | None = Field(
        None, description="days for which corrections are kept; absent if they are not accepted"
    )


class ModelsResponse(BaseModel):
    """All served models and the limits of a request."""

    models: list[ModelInfo] = Field(description="served models in order of preference")
    limits: RequestLimits = Field(description="limits of a request")
    detection: bool = Field(description="whether the source `auto` detects the language")
    document_formats: list[str] = Field(description="suffixes of the documents that are translated")
    explorer: bool = Field(description="whether `/inside/explorer.html` shows how a model works")


class ErrorContent(BaseModel):
    """Details of an error."""

    code: str = Field(description="kind of error, for programs")
    message: str = Field(description="description of the error, for people")
    request_id: str = Field(description="id of the request, as in the log and in X-Request-Id")


class Error(BaseModel):
    """Error response."""

    error: ErrorContent = Field(description="details of the error")


class PlainError(BaseModel):
    """Error response outside `/api`, as in LibreTranslate."""

    error: str = Field(description="description of the error, for people")


class Health(BaseModel):
    """State of the server."""

    status: Literal["ok", "not ready"] = Field(description="`ok` if the check succeeded")
