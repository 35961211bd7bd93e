"""The sections of the configuration: every key with its type, default and description."""

import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticCustomError


def _number(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """Reject booleans, which pydantic would accept as 0 and 1, and integers above 64 bits."""
    if isinstance(value, bool):
        raise PydanticCustomError("boolean", "Input should be a number")
    number = validate(value)
    if number > sys.maxsize:
        raise PydanticCustomError("too_large", "Input should be less")
    return number


Numeric = WrapValidator(_number)
Count = Annotated[int, Field(ge=1), Numeric]
Limit = Annotated[int, Field(ge=1, le=100_000), Numeric]
"""A limit in tokens. A decoder allocates it, and larger ones would overflow or fill the memory."""
Fraction = Annotated[float, Field(ge=0, lt=1), Numeric]
Positive = Annotated[float, Field(gt=0), Numeric]
Language = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$")]
ModelPart = Literal["embeddings", "encoder", "decoder"]
Direction = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*-[A-Za-z][A-Za-z0-9_]*$")]


class Section(BaseModel):
    """An immutable group of keys. Unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        problems = list(self._conflicts())
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def _conflicts(self) -> Iterator[str]:
        """Yield the conflicts between keys whose values are valid on their own."""
        return iter(())


def add_languages(data: Mapping[str, Any]) -> dict[str, Any]:
    """Add source and target of the first direction to a section `data`, unless they are given."""
    directions = data.get("directions")
    first = str(directions[0]) if isinstance(directions, list | tuple) and directions else ""
    source, dash, target = first.partition("-")
    languages = {"source": source, "target": target} if dash else {}
    return languages | dict(data)


class DataConfig(Section):
    """The training data, and how it is divided into batches."""

    corpus: str | None = Field("toy", description="named corpus; null if train names files")
    source: Language = Field("en", description="language to translate from")
    target: Language = Field("de", description="language to translate to")
    directions: tuple[Direction, ...] | None = Field(
        None,
        description="directions of a model with several, such as [en-de, de-en]; source and target "
        "are then the first of them",
    )
    direction_temperature: Annotated[float, Field(ge=1), Numeric] = Field(
        1.0,
        description="temperature T of sampling the directions of an epoch: each has a share of "
        "(its share of all pairs)^(1/T); 1 takes every pair once, higher values repeat pairs of "
        "small directions and leave out pairs of large ones",
    )
    train: Annotated[tuple[str, ...], Field(min_length=1)] | None = Field(
        None,
        description="your own training data: pairs of aligned files, files of other formats, or "
        "folders",
    )
    val: Annotated[tuple[str, ...], Field(min_length=1)] | None = Field(
        None, description="validation set that goes with train; null holds out pairs of train"
    )
    max_pairs: Count | None = Field(
        None, description="train on only this many pairs, the first ones; null for all"
    )
    max_length: Annotated[int, Field(ge=2), Numeric] = Field(
        128, description="omit training pairs with a side of more tokens, including EOS"
    )
    batch_tokens: Count | Literal["auto"] = Field(
        4096,
        description="batch size in padded tokens (rows x the longer padded side), summed over all "
        "devices; auto measures the largest batch that fits on one device, at most 25,000, and "
        "works on a single host only",
    )
    bpe_dropout: Fraction = Field(
        0.0,
        description="fraction of BPE merges that are skipped in training, sampled again in every "
        "epoch; 0.05 splits text about as much as 0.1 in the paper, where a skipped merge may be "
        "tried again",
    )

    @property
    def padded_tokens(self) -> int:
        """`batch_tokens` as a number. `auto` has been replaced before training starts."""
        assert self.batch_tokens != "auto"
        return self.batch_tokens

    @property
    def all_directions(self) -> tuple[str, ...]:
        """The directions that the model is trained on, for example `en-de`."""
        return self.directions or (f"{self.source}-{self.target}",)

    @property
    def targets(self) -> tuple[str, ...]:
        """All target languages, sorted."""
        return tuple(sorted({direction.split("-")[1] for direction in self.all_directions}))

    def of_direction(self, direction: str) -> Self:
        """Return the section for a single direction."""
        source, target = direction.split("-")
        return self.model_copy(update={"source": source, "target": target, "directions": None})

    @model_validator(mode="before")
    @classmethod
    def _add_languages(cls, keys: Any) -> Any:
        return add_languages(keys) if isinstance(keys, Mapping) else keys

    def _conflicts(self) -> Iterator[str]:
        yield from self._conflicting_directions()
        if self.source == self.target:
            yield f"source and target are both '{self.source}'; set two different languages"
        if self.corpus is not None and self.train is not None:
            yield "corpus and train are both set; set one of them to null"
        if self.corpus is None and self.train is None:
            yield "corpus and train are both null; set one of them"
        if self.val is not None and self.train is None:
            yield "val is set without train; set both, or use the validation set of the corpus"
        if self.batch_tokens != "auto" and self.batch_tokens < self.max_length:
            yield (
                f"batch_tokens {self.batch_tokens} is less than max_length {self.max_length}; "
                "raise batch_tokens or lower max_length"
            )

    def _conflicting_directions(self) -> Iterator[str]:
        directions = self.all_directions
        if self.directions == ():
            yield "directions is an empty list; name directions like en-de, or set it to null"
        if f"{self.source}-{self.target}" != directions[0]:
            yield (
                f"source and target are {self.source} and {self.target}, but directions begins "
                f"with {directions[0]}; omit source and target, or set directions to null"
            )
        for direction in directions[1:]:
            if len(set(direction.split("-"))) == 1:
                yield f"directions: {direction} has a single language; name two different ones"
        for direction in sorted({each for each in directions if directions.count(each) > 1}):
            yield f"directions: {direction} is repeated; name each direction once"


class CleaningConfig(Section):
    """Rules that remove training pairs. No rule changes text."""

    empty: bool = Field(
        True, description="remove pairs with a side that is empty or only white space"
    )
    broken: bool = Field(
        False,
        description="remove pairs with bytes that are not UTF-8, with U+FFFD or with control "
        "characters; if false, bytes that are not UTF-8 are an error",
    )
    max_characters: Count | None = Field(
        None, description="remove pairs with a side of more characters; null for no limit"
    )
    max_ratio: Annotated[float, Field(ge=1), Numeric] | None = Field(
        None,
        description="remove pairs with a side of more than this many times the characters of the "
        "other side; null for no limit",
    )
    identical: bool = Field(False, description="remove pairs with identical source and target")
    scripts: bool = Field(
        False,
        description="remove pairs with a side that is mostly in a script of other languages",
    )
    duplicates: bool = Field(False, description="remove repeated pairs, except the first of them")
    leakage: bool = Field(
        True,
        description="remove pairs that are also in the validation set, or in the test set of a "
        "named corpus, with both sides identical",
    )


class TokenizerConfig(Section):
    """The joint SentencePiece BPE model of both languages."""

    vocab_size: Annotated[int, Field(ge=262, le=2**31 - 1), Numeric] = Field(
        8000, description="number of tokens, including special tokens and byte tokens"
    )
    normalization: Literal["identity", "nfkc"] = Field(
        "identity",
        description="identity leaves text unchanged; nfkc replaces compatibility characters",
    )
    from_run: str | None = Field(
        None, description="run whose tokenizer is reused; null trains one on the training data"
    )


class ModelConfig(Section):
    """The shape of the Transformer, with the names of the paper (section 3)."""

    num_encoder_layers: Count = Field(4, description="encoder layers, N in the paper")
    num_decoder_layers: Count = Field(4, description="decoder layers, N in the paper")
    d_model: Annotated[int, Field(ge=2, multiple_of=2), Numeric] = Field(
        256, description="dimension of embeddings and of layer outputs"
    )
    num_heads: Count = Field(4, description="attention heads; must divide d_model")
    d_ff: Count = Field(1024, description="inner dimension of the feed-forward layers")
    dropout: Fraction = Field(
        0.1, description="dropout of the output of each sublayer, and of the sum of embeddings"
    )
    attention_dropout: Fraction = Field(0.0, description="dropout of the attention weights")
    ffn_dropout: Fraction = Field(
        0.0, description="dropout inside the feed-forward layers, after the activation"
    )
    attention: Literal["standard", "flash"] = Field(
        "standard",
        description="flash trains with memory that grows linearly with the sentence length, and "
        "saves memory from about 1,000 tokens on; everything except training uses standard",
    )
    activation: Literal["relu", "gelu"] = Field(
        "relu", description="activation of the feed-forward layers"
    )
    norm_first: bool = Field(
        True, description="true for pre-norm, false for post-norm as in the paper"
    )
    norm_epsilon: Positive = Field(
        1e-6, description="number added to the variance in layer normalization"
    )
    tie_embeddings: Literal["all", "target", "none"] = Field(
        "all",
        description="shared embedding tables: all for source, target and output; target for "
        "target and output; none for three separate tables",
    )

    def _conflicts(self) -> Iterator[str]:
        if self.d_model % self.num_heads:
            yield (
                f"num_heads {self.num_heads} does not divide d_model {self.d_model}; "
                "choose a divisor"
            )


class TrainingConfig(Section):
    """Optimization, validation and checkpoints (section 5 of the paper)."""

    seed: Annotated[int, Field(ge=0, lt=2**31), Numeric] = Field(
        1, description="random seed of the initial weights, the order of batches and dropout"
    )
    max_steps: Count | None = Field(None, description="stop after this many steps")
    max_epochs: Count | None = Field(20, description="stop after this many epochs")
    max_tokens: Count | None = Field(None, description="stop after this many target tokens")
    max_minutes: Positive | None = Field(
        None, description="stop after this many minutes of training"
    )
    patience: Count | None = Field(
        None,
        description="early stopping: stop after this many validations without a better BLEU; null "
        "turns it off",
    )
    precision: Literal["float32", "mixed_bfloat16", "auto"] = Field(
        "float32",
        description="precision of computation; weights are always float32; auto is mixed_bfloat16 "
        "on devices with fast bfloat16, otherwise float32, and works on a single host only",
    )
    device_tokens: Count | None = Field(
        None,
        description="maximum padded tokens that a device computes at once, where R-Drop and SimCut "
        "count both forward passes; a larger batch is computed in parts with gradient "
        "accumulation; null for no limit",
    )
    init_from: str | None = Field(
        None,
        description="run that provides the initial weights and the tokenizer; it may have more "
        "layers, of which those at even distances are used; null for random weights",
    )
    freeze: tuple[ModelPart, ...] = Field((), description="parts whose weights are not trained")
    ema_decay: Annotated[float, Field(gt=0, lt=1), Numeric] | None = Field(
        None,
        description="decay of a moving average of the weights, which is then validated and becomes "
        "the final model; null for no average",
    )
    warmup_steps: Count = Field(4000, description="steps until the learning rate is highest")
    learning_rate_scale: Positive = Field(
        1.0, description="factor of the learning rate schedule of the paper"
    )
    adam_beta_1: Fraction = Field(0.9, description="Adam's decay of the mean gradient")
    adam_beta_2: Fraction = Field(0.98, description="Adam's decay of the mean squared gradient")
    adam_epsilon: Positive = Field(1e-9, description="number added to Adam's denominator")
    clip_norm: Positive | None = Field(
        None, description="maximum norm of the whole gradient; null turns clipping off"
    )
    label_smoothing: Fraction = Field(
        0.1, description="probability that is spread over the whole vocabulary"
    )
    r_drop: Positive | None = Field(
        None,
        description="alpha of R-Drop: each pair is computed twice with different dropout, and a "
        "loss term makes the two predictions similar (each token then counts twice); null turns it "
        "off",
    )
    simcut: Positive | None = Field(
        None,
        description="alpha of SimCut: each pair is computed a second time without the embeddings "
        "of some tokens, and a loss term makes the two predictions similar (each token counts "
        "once); null turns it off",
    )
    simcut_share: Annotated[float, Field(gt=0, lt=1), Numeric] = Field(
        0.05, description="share of the tokens whose embeddings SimCut sets to zero, on both sides"
    )
    checkpoint_steps: Count = Field(1000, description="steps between two checkpoints")
    validation_steps: Count = Field(1000, description="steps between two validations")
    keep_last: Count = Field(5, description="number of checkpoints to keep")
    average_last: Count = Field(
        5, description="number of last checkpoints averaged into averaged/ when training ends"
    )
    log_steps: Count = Field(50, description="steps between two points in TensorBoard")
    histogram_steps: Count | None = Field(
        None,
        description="steps between two TensorBoard histograms of each weight and its gradient; "
        "null writes none",
    )

    @property
    def forward_passes(self) -> int:
        """Forward passes per pair, each with its own dropout mask: 2 with R-Drop or SimCut."""
        return 1 if self.r_drop is None and self.simcut is None else 2

    def _conflicts(self) -> Iterator[str]:
        limits = (self.max_steps, self.max_epochs, self.max_tokens, self.max_minutes, self.patience)
        if all(limit is None for limit in limits):
            yield "has no end; set max_steps, max_epochs, max_tokens, max_minutes or patience"
        if len(set(self.freeze)) == len(get_args(ModelPart)):
            yield "freeze names all parts, so nothing is trained; remove one of them"
        if self.r_drop is not None and self.simcut is not None:
            yield "r_drop and simcut are both set; set one of them to null"
        if self.keep_last < self.average_last:
            yield (
                f"keep_last {self.keep_last} is less than average_last {self.average_last}; raise "
                "keep_last or lower average_last"
            )


Decodings = tuple[Literal["beam", "sampling"], ...]
Changes = tuple[str, ...]


class DiversificationConfig(Section):
    """Data diversification with `diversify` (Nguyen et al., 2020). No other command reads it."""

    teachers: Count = Field(1, description="teachers of each direction, with different seeds")
    rounds: Count = Field(
        1, description="rounds; teachers of a later round learn from the corpus of the one before"
    )
    real_copies: Count = Field(1, description="how often a corpus contains each real pair")
    forward: Decodings = Field(
        ("beam",),
        description="how teachers translate the source side, each time once; [] for no teachers of "
        "this direction",
    )
    backward: Decodings = Field(
        ("beam",), description="the same for the target side and the opposite direction"
    )
    temperature: Positive = Field(1.0, description="temperature of sampling")
    tag: str | None = Field(
        None, description="text put before each synthetic source; null for none"
    )
    forward_teacher: Changes = Field(
        (), description="keys that differ for forward teachers, such as [model.d_ff=512]"
    )
    backward_teacher: Changes = Field((), description="keys that differ for backward teachers")
    student: Changes = Field((), description="keys that differ for the student")

    def _conflicts(self) -> Iterator[str]:
        if not (self.forward or self.backward):
            yield "forward and backward are both empty; name a decoding, such as [beam]"
        for name in ("forward", "backward"):
            decodings = getattr(self, name)
            if len(set(decodings)) < len(decodings):
                yield f"{name}: a decoding is repeated; name each once"


class DecodingConfig(Section):
    """Beam search, and the limits of its input and output."""

    beam_size: Annotated[int, Field(ge=1, le=1000), Numeric] = Field(
        4, description="hypotheses kept at each step; 1 means greedy search"
    )
    length_penalty: Annotated[float, Field(ge=0), Numeric] = Field(
        0.6,
        description="alpha of the length penalty (Wu et al. 2016, equation 14); 0 favors short "
        "output",
    )
    max_source_length: Annotated[int, Field(ge=2, le=100_000), Numeric] = Field(
        256,
        description="maximum tokens of a source, including EOS; a longer source is truncated and "
        "reported",
    )
    max_extra_length: Limit = Field(
        50, description="a translation may have at most this many tokens more than its source"
    )
    max_length: Limit | None = Field(
        None,
        description="maximum tokens of a translation of any source, including EOS; null uses "
        "max_extra_length",
    )
    min_length: Annotated[int, Field(ge=0), Numeric] = Field(
        0, description="minimum tokens of a translation, excluding EOS"
    )
    no_repeat_ngram: Annotated[int, Field(ge=2, le=100), Numeric] | None = Field(
        None,
        description="no sequence of this many tokens may occur twice in a translation; null turns "
        "it off",
    )
    split_sentences: bool = Field(
        False,
        description="whether translate splits lines into sentences by default, for models that "
        "were trained on single sentences",
    )

    @property
    def max_translation_length(self) -> int:
        """Maximum tokens of any translation, including EOS."""
        return self.max_length or self.max_source_length + self.max_extra_length

    def _conflicts(self) -> Iterator[str]:
        if self.max_length is not None and self.max_length <= self.min_length:
            yield (
                f"max_length {self.max_length} must exceed min_length {self.min_length}, because "
                "it includes EOS; raise max_length"
            )
        elif self.max_translation_length <= self.min_length:
            yield (
                f"min_length {self.min_length} must be below {self.max_translation_length}, the "
                "maximum length of a translation (max_source_length + max_extra_length); lower "
                "min_length"
            )


class SamplingConfig(Section):
    """Sampling of translations. Flags set it; it is not part of a run."""

    temperature: Positive = Field(
        1.0, description="below 1 makes probable tokens more probable, above 1 less"
    )
    top_k: Count | None = Field(
        None, description="sample only from this many most probable tokens; null for all"
    )
    top_p: Annotated[float, Field(gt=0, le=1), Numeric] = Field(
        1.0, description="sample only from the most probable tokens with this total probability"
    )


class Config(Section):
    """The complete configuration of a run."""

    data: DataConfig = DataConfig()
    cleaning: CleaningConfig = CleaningConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()
    decoding: DecodingConfig = DecodingConfig()
    diversification: DiversificationConfig = DiversificationConfig()

    def of_run(self) -> Self:
        """Return the configuration of a training run, which does not record diversification."""
        return self.model_copy(update={"diversification": DiversificationConfig()})
