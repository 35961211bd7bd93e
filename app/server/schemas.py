"""What the API takes and gives."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from app.engines.engine import Limits, Mode
from app.models.model import MOST_ALTERNATIVES

Code = Annotated[str, Field(min_length=1, max_length=35)]
"""A language, as en or pt-BR."""


def _whole(text: str) -> str:
    """JSON can hold half of a surrogate pair, which is no character."""
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("half a surrogate pair is no text")
    return text


Text = Annotated[str, AfterValidator(_whole)]


class Request(BaseModel):
    """What every request may say: which model it means."""

    model_config = ConfigDict(extra="forbid", strict=True)

    source: Code | None = Field(None, description="language of the text", examples=["en"])
    target: Code | None = Field(None, description="language of the translation", examples=["de"])
    model: str | None = Field(None, description="a model's name, where several have the languages")


class TranslateRequest(Request):
    """Texts to be translated; lines and white space stay as they are."""

    text: Text | Annotated[list[Text], Field(min_length=1)] = Field(
        examples=["A man sleeps.", ["A man sleeps.", "A dog runs."]]
    )
    mode: Mode = Field("beam", description="`greedy` is faster, `beam` better")
    alternatives: int = Field(
        0, ge=0, le=MOST_ALTERNATIVES, description="how many other translations; needs `beam`"
    )


class PairRequest(Request):
    """A text and a translation of it, by whomever."""

    text: Text = Field(examples=["A man sleeps."])
    translation: Text = Field(examples=["Ein Mann schläft."])


class AttentionRequest(PairRequest):
    """A sentence and a translation of it; each is cut at 64 pieces."""

    kind: Literal["encoder", "decoder", "cross"] = "cross"
    layer: int | None = Field(None, ge=1, description="1 is the first; the last where none is said")


class Alternative(BaseModel):
    """Another translation."""

    text: str
    score: float


class Translation(Alternative):
    """The best translation; the score ranks, and is no probability of being right."""

    truncated: bool = Field(description="whether a sentence was longer than the model takes")
    alternatives: list[Alternative]


class ModelName(BaseModel):
    """Which model answered."""

    name: str
    version: str


class Answered(BaseModel):
    """What every answer says."""

    model: ModelName
    took_ms: int
    request_id: str


class TranslateAnswer(Answered):
    """A translation a text, in order."""

    translations: list[Translation]


class Piece(BaseModel):
    """A part of a word, and where it stands, in code points of the whole text."""

    text: str
    start: int
    end: int


class TargetPiece(Piece):
    """A part of a translation."""

    log_prob: float


class SentencePair(BaseModel):
    """A sentence and its translation; `attention` has a row per target piece."""

    source: list[Piece]
    target: list[TargetPiece]
    attention: list[list[float]]


class AlignAnswer(Answered):
    """Sentence by sentence where it can be told, line by line or whole where not."""

    pairs: list[SentencePair]


class AttentionAnswer(Answered):
    """`weights`, `[heads][rows][columns]`: each row sums to 1."""

    kind: Literal["encoder", "decoder", "cross"]
    layer: int
    layers: int
    rows: list[str]
    columns: list[str]
    weights: list[list[list[float]]]


class ModelInfo(ModelName):
    """A model that is loaded."""

    source: str
    target: str
    ready: bool
    limits: Limits


class RequestLimits(BaseModel):
    """What a request may hold."""

    max_chars: int
    max_texts: int
    max_alternatives: int
    deadline_seconds: float
    key_required: bool


class ModelsAnswer(BaseModel):
    """All models, and the limits of a request."""

    models: list[ModelInfo]
    limits: RequestLimits


class ErrorContent(BaseModel):
    """`code` is for programs, `message` for people."""

    code: str
    message: str
    request_id: str


class Error(BaseModel):
    """An answer that is none."""

    error: ErrorContent


class PlainError(BaseModel):
    """An error as LibreTranslate gives it."""

    error: str


class Health(BaseModel):
    """How it goes."""

    status: Literal["ok", "not ready"]
