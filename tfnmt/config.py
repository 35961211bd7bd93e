"""The configuration: every key with its type, its default and its meaning.

A YAML file, flags and `--set` overrides are merged in that order and checked at once. Nothing here
imports TensorFlow, so that a mistyped key is reported within a second.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from tfnmt.errors import UsageError, nearest


def _no_switch(value: Any) -> Any:
    """What is no boolean: pydantic, like Python, takes those for 0 and 1."""
    if isinstance(value, bool):
        raise PydanticCustomError("no_number", "Input should be a number")
    return value


Numeric = BeforeValidator(_no_switch)
Count = Annotated[int, Field(ge=1), Numeric]
Share = Annotated[float, Field(ge=0, lt=1), Numeric]
Positive = Annotated[float, Field(gt=0), Numeric]
Language = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$")]


class Section(BaseModel):
    """A frozen group of keys that knows no others."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="after")
    def _sensible(self) -> Self:
        problems = list(self._contradictions())
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def _contradictions(self) -> Iterator[str]:
        """What is wrong between keys of which each is possible."""
        return iter(())


class DataConfig(Section):
    """What the model is trained on, and how it is cut into batches."""

    corpus: str | None = Field("toy", description="a named corpus; null where train names files")
    source: Language = Field("en", description="the language to translate from")
    target: Language = Field("de", description="the language to translate to")
    train: Annotated[tuple[str, ...], Field(min_length=1)] | None = Field(
        None, description="one's own text: couples of aligned files, other formats, folders"
    )
    val: Annotated[tuple[str, ...], Field(min_length=1)] | None = Field(
        None, description="the validation text beside train; null holds out rows of train"
    )
    max_pairs: Count | None = Field(
        None, description="train on this many pairs only, the first ones; null for all"
    )
    max_length: Annotated[int, Field(ge=2), Numeric] = Field(
        128,
        description="leave out training pairs with more pieces than this on a side, eos counted",
    )
    batch_tokens: Count | Literal["auto"] = Field(
        4096,
        description="slots of a batch over all replicas, rows x the longer padded side; auto is "
        "what one device was measured to hold, 25,000 at most, and is for one host",
    )
    bpe_dropout: Share = Field(
        0.0,
        description="share of BPE merges skipped in training, drawn anew every epoch; 0.05 cuts "
        "text about as 0.1 does in the paper, where a merge that was skipped may come again",
    )

    @property
    def slots(self) -> int:
        """`batch_tokens`, which is a number once training begins."""
        assert self.batch_tokens != "auto"
        return self.batch_tokens

    def _contradictions(self) -> Iterator[str]:
        if self.source == self.target:
            yield f"source and target are both '{self.source}'; name two languages"
        if (self.corpus is None) == (self.train is None):
            yield "set either corpus or train; the other one is null"
        if self.val is not None and self.train is None:
            yield "val goes with train; a named corpus has its own validation text"
        if self.batch_tokens != "auto" and self.batch_tokens < self.max_length:
            yield (
                f"batch_tokens {self.batch_tokens} cannot hold one pair of max_length "
                f"{self.max_length}; raise it or lower data.max_length"
            )


class CleaningConfig(Section):
    """Which training pairs are left out. A rule removes pairs whole: no text is altered."""

    empty: bool = Field(True, description="pairs with a side of nothing but white space")
    broken: bool = Field(
        False,
        description="pairs with bytes that are not UTF-8 (which are an error otherwise), U+FFFD or "
        "control characters",
    )
    max_characters: Count | None = Field(None, description="pairs with a side longer than this")
    max_ratio: Annotated[float, Field(ge=1), Numeric] | None = Field(
        None, description="pairs with a side of more than this many times the other's characters"
    )
    identical: bool = Field(False, description="pairs whose target is their source")
    scripts: bool = Field(
        False, description="pairs with a side mostly in another script than its language's"
    )
    duplicates: bool = Field(False, description="pairs that came before")
    leakage: bool = Field(
        True,
        description="pairs that the validation text, or a named corpus' test text, has too, both "
        "sides the same",
    )


class TokenizerConfig(Section):
    """The joint SentencePiece BPE model of both languages."""

    vocab_size: Annotated[int, Field(ge=262, le=2**31 - 1), Numeric] = Field(
        8000, description="pieces, special and byte pieces counted"
    )
    normalization: Literal["identity", "nfkc"] = Field(
        "identity", description="identity leaves the text alone; nfkc folds compatible characters"
    )
    from_run: str | None = Field(
        None, description="a run whose tokenizer is taken as it is; null learns one from the text"
    )


class ModelConfig(Section):
    """The Transformer's shape. The paper's names, section 3."""

    num_encoder_layers: Count = Field(4, description="layers of the encoder, N in the paper")
    num_decoder_layers: Count = Field(4, description="layers of the decoder")
    d_model: Annotated[int, Field(ge=2, multiple_of=2), Numeric] = Field(
        256, description="width of embeddings and layers"
    )
    num_heads: Count = Field(4, description="attention heads; divides d_model")
    d_ff: Count = Field(1024, description="inner width of the feed-forward layers")
    dropout: Share = Field(0.1, description="dropped from each sublayer's output and embedding sum")
    attention_dropout: Share = Field(0.0, description="dropped from the attention weights")
    ffn_dropout: Share = Field(0.0, description="dropped inside the feed-forward, after activation")
    activation: Literal["relu", "gelu"] = Field("relu", description="of the feed-forward layers")
    norm_first: bool = Field(True, description="pre-norm; false is the paper's post-norm")
    norm_epsilon: Positive = Field(1e-6, description="added to the variance in layer norm")
    tie_embeddings: Literal["all", "target", "none"] = Field(
        "all", description="one table for source, target and output; target and output; or three"
    )

    def _contradictions(self) -> Iterator[str]:
        if self.d_model % self.num_heads:
            yield (
                f"num_heads {self.num_heads} does not divide d_model {self.d_model}; "
                "choose a divisor"
            )


class TrainingConfig(Section):
    """How the weights are found. The paper's section 5."""

    seed: Annotated[int, Field(ge=0, lt=2**31), Numeric] = Field(
        1, description="decides initial weights, order of batches and dropout"
    )
    max_steps: Count | None = Field(None, description="stop after this many updates")
    max_epochs: Count | None = Field(20, description="stop after this many passes over the data")
    max_tokens: Count | None = Field(None, description="stop after this many target tokens")
    max_minutes: Positive | None = Field(
        None, description="stop after this many minutes of training"
    )
    patience: Count | None = Field(
        None, description="stop after this many validations without a better BLEU; null never"
    )
    precision: Literal["float32", "mixed_bfloat16"] = Field(
        "float32", description="what is computed with; weights are float32 in any case"
    )
    device_tokens: Count | None = Field(
        None,
        description="slots that a device works on at once, at most, both readings of R-Drop "
        "counted: more are worked on in parts, whose gradients are added up; null for all at once",
    )
    init_from: str | None = Field(
        None, description="a run to begin with: its weights, its tokenizer; null begins anew"
    )
    freeze: tuple[Literal["embeddings", "encoder", "decoder"], ...] = Field(
        (), description="parts that keep the weights they begin with"
    )
    ema_decay: Annotated[float, Field(gt=0, lt=1), Numeric] | None = Field(
        None, description="keep a moving average of the weights, validate and finish with it"
    )
    warmup_steps: Count = Field(4000, description="updates until the learning rate peaks")
    learning_rate_scale: Positive = Field(1.0, description="factor on the paper's schedule")
    adam_beta_1: Share = Field(0.9, description="Adam's decay of the gradient's mean")
    adam_beta_2: Share = Field(0.98, description="Adam's decay of the gradient's square")
    adam_epsilon: Positive = Field(1e-9, description="Adam's guard of the division")
    clip_norm: Positive | None = Field(
        None, description="largest norm of the whole gradient; null does not clip"
    )
    label_smoothing: Share = Field(0.1, description="probability spread over the whole vocabulary")
    r_drop: Positive | None = Field(
        None,
        description="alpha of R-Drop: each pair is read twice with different dropout, and the two "
        "predictions are pulled towards each other (a token then counts twice); null reads once",
    )
    checkpoint_steps: Count = Field(1000, description="updates from one checkpoint to the next")
    validation_steps: Count = Field(1000, description="updates from one validation to the next")
    keep_last: Count = Field(5, description="checkpoints kept")
    average_last: Count = Field(
        5, description="last checkpoints averaged into averaged/ at the end"
    )
    log_steps: Count = Field(50, description="updates from one TensorBoard point to the next")
    histogram_steps: Count | None = Field(
        None,
        description="updates from one TensorBoard histogram of each weight and its gradient "
        "to the next; null draws none",
    )

    @property
    def readings(self) -> int:
        """How often each pair is read, with dropouts of their own."""
        return 1 if self.r_drop is None else 2

    def _contradictions(self) -> Iterator[str]:
        limits = (self.max_steps, self.max_epochs, self.max_tokens, self.max_minutes, self.patience)
        if all(limit is None for limit in limits):
            yield (
                "nothing ends the training; set max_steps, max_epochs, max_tokens, max_minutes or "
                "patience"
            )
        if self.keep_last < self.average_last:
            yield (
                f"keep_last {self.keep_last} keeps fewer checkpoints than average_last "
                f"{self.average_last} needs; raise keep_last"
            )


class DecodingConfig(Section):
    """How translations are searched for."""

    beam_size: Count = Field(4, description="hypotheses kept at each step; 1 searches greedily")
    length_penalty: Annotated[float, Field(ge=0), Numeric] = Field(
        0.6, description="alpha of Wu et al. (2016), equation 14; 0 favours short output"
    )
    max_source_length: Annotated[int, Field(ge=2), Numeric] = Field(
        256, description="a longer source, in pieces with eos, is cut and says so"
    )
    max_extra_length: Count = Field(
        50, description="a translation has at most this many pieces more than its source"
    )
    max_length: Count | None = Field(
        None,
        description="a translation has at most this many pieces, eos counted, whatever its "
        "source; null goes by max_extra_length",
    )
    min_length: Annotated[int, Field(ge=0), Numeric] = Field(
        0, description="a translation has at least this many pieces, eos not counted"
    )
    no_repeat_ngram: Annotated[int, Field(ge=2), Numeric] | None = Field(
        None, description="no sequence of this many pieces occurs twice in a translation"
    )

    @property
    def longest(self) -> int:
        """The most pieces that any translation may have, eos counted."""
        most = self.max_length or self.max_source_length + self.max_extra_length
        return max(most, self.min_length + 1)

    def _contradictions(self) -> Iterator[str]:
        if self.max_length is not None and self.max_length <= self.min_length:
            yield (
                f"max_length {self.max_length} leaves no room for min_length {self.min_length} "
                "pieces and an eos; raise it"
            )


class SamplingConfig(Section):
    """Where pieces are drawn from, by whom draws translations; no part of a run."""

    temperature: Positive = Field(1.0, description="below 1 sharpens the distribution")
    top_k: Count | None = Field(None, description="only from this many pieces, the likeliest")
    top_p: Annotated[float, Field(gt=0, le=1), Numeric] = Field(
        1.0, description="only from the likeliest that together have so much probability"
    )


class Config(Section):
    """All that decides a run."""

    data: DataConfig = DataConfig()
    cleaning: CleaningConfig = CleaningConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()
    decoding: DecodingConfig = DecodingConfig()


Tree = dict[str, Any]


def preset_path(name: str) -> Path:
    """The preset of that name: configs/ of the clone, or of the wheel."""
    path = _presets_folder() / f"{name}.yaml"
    if not path.is_file():
        names = preset_names()
        raise UsageError(
            f"--dataset={name}: no such preset; {nearest(name, names)}there are {', '.join(names)}"
        )
    return path


def preset_names() -> list[str]:
    """The experiments that come with tfnmt."""
    return sorted(path.stem for path in _presets_folder().glob("*.yaml"))


class _Loader(yaml.SafeLoader):
    """Refuses a key that stands twice, of which YAML's readers take the last without a word."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and (key.tag, key.value) in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"{key.value} stands there twice", problem_mark=key.start_mark
                )
            seen.add((key.tag, str(key.value)))
        return node


def read_tree(path: Path) -> Tree:
    """A YAML file as nested dictionaries."""
    try:
        tree = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; name a YAML file") from error
    except (yaml.YAMLError, ValueError) as error:
        raise UsageError(
            f"{path}: cannot be read as YAML: {' '.join(str(error).split())}; mend it"
        ) from error
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise UsageError(f"{path}: not sections with keys; see configs/toy.yaml")
    return tree


def parse_overrides(assignments: Iterable[str]) -> Tree:
    """`["model.d_model=128"]` as `{"model": {"d_model": 128}}`; the values are YAML."""
    tree: Tree = {}
    problems = []
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        section, dot, name = key.strip().partition(".")
        if not (equals and dot and section and name):
            problems.append(f"--set {assignment}: not SECTION.KEY=VALUE; try model.d_model=128")
            continue
        try:
            value = yaml.safe_load(text)
        except (yaml.YAMLError, ValueError):
            problems.append(f"--set {assignment}: the value is not YAML; quote it")
            continue
        tree.setdefault(section, {})[name] = value
    if problems:
        raise UsageError(*problems)
    return tree


def merge(*trees: Mapping[str, Any]) -> Tree:
    """Nested dictionaries, the later ones over the earlier."""
    merged: Tree = {}
    for tree in trees:
        for key, value in tree.items():
            old = merged.get(key)
            both = isinstance(old, Mapping) and isinstance(value, Mapping)
            merged[key] = merge(old, value) if both else value  # type: ignore[arg-type]
    return merged


def build_config(tree: Mapping[str, Any]) -> Config:
    """The configuration that a tree describes; raises one UsageError with every problem."""
    sections = {name: value for name, value in tree.items() if value is not None}
    try:
        return Config.model_validate(sections)
    except ValidationError as error:
        details = (dict(detail) for detail in error.errors())
        raise UsageError(*(line for detail in details for line in _problems(detail))) from error


def dump_config(config: Config) -> str:
    """The configuration as the YAML that `read_tree` and `build_config` turn back into it."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def flatten(config: Config) -> dict[str, Any]:
    """Every key with its value, as `{"model.d_model": 256, ...}`."""
    return {
        f"{section}.{key}": value
        for section, keys in config.model_dump(mode="json").items()
        for key, value in keys.items()
    }


ENDS = tuple(
    f"training.{key}"
    for key in ("max_steps", "max_epochs", "max_tokens", "max_minutes", "patience")
)
"""Keys that say when a training ends, and nothing of what it does until then."""

MAY_CHANGE = (*ENDS, "training.device_tokens")
"""Keys that a run may go on with other values of: its updates stay what they are."""


def differing_keys(config: Config, other: Config) -> list[str]:
    """The keys in which two configurations differ."""
    theirs = flatten(other)
    return [key for key, value in flatten(config).items() if value != theirs[key]]


def _presets_folder() -> Path:
    """Where the presets lie: inside an installed package, or beside it in a clone."""
    package = Path(__file__).resolve().parent
    return next(
        (folder for folder in (package / "configs", package.parent / "configs") if folder.is_dir()),
        package / "configs",
    )


def _problems(detail: dict[str, Any]) -> list[str]:
    """One of pydantic's errors: a line, or a line per contradiction of a section."""
    location = [str(part) for part in detail["loc"]]
    key = ".".join(location[:2])
    if detail["type"] == "extra_forbidden":
        known = _keys(location[0]) if len(location) > 1 else list(Config.model_fields)
        hint = nearest(location[-1], known)
        return [f"{key}: unknown key; {hint}there are {', '.join(known)}"]
    if detail["type"] == "value_error":
        return [f"{key}: {line}" for line in str(detail["ctx"]["error"]).splitlines()]
    if key == "data.batch_tokens":  # a number or a word: pydantic complains about both
        if detail["type"] != "literal_error":
            return []
        return [f"{key}: {detail['input']!r} is wrong; give a number of 1 or more, or 'auto'"]
    if detail["type"] == "literal_error":
        return [f"{key}: {detail['input']!r} is not possible; choose {detail['ctx']['expected']}"]
    expected = detail["msg"][0].lower() + detail["msg"][1:]
    return [f"{key}: {detail['input']!r} is wrong; {expected.replace('input should', 'it should')}"]


def _keys(section: str) -> list[str]:
    """The keys of a section; a section has no optional or nested type."""
    annotation = Config.model_fields[section].annotation
    assert annotation is not None
    return list(annotation.model_fields)
