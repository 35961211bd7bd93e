"""The sizes of a training run on your own data, chosen by the amount of text and the time.

Without a preset, `choose` takes the largest row of SIZES that the text allows. With
`training.max_minutes`, it takes the largest one that this machine also trains long enough in that
time. The expected number of steps gives warm-up, intervals and dropout. Every key that the user
sets wins. Nothing here imports TensorFlow.
"""

import math
import re
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from tfnmt.config import Config, Tree, build_config, merge
from tfnmt.data.corpora.catalog import open_corpus, split_name
from tfnmt.data.corpora.corpus import check_files
from tfnmt.data.corpora.directions import by_direction
from tfnmt.data.corpora.text_files import Pair
from tfnmt.errors import UsageError
from tfnmt.progress import log, progress_bar
from tfnmt.runs.run import Run
from tfnmt.runtime.cluster import is_distributed
from tfnmt.training.speed import batch_tokens, measured_speed, step_work


class Size(NamedTuple):
    """A model, and the settings that suit it."""

    name: str
    text_tokens: int  # least target tokens of the text
    read_tokens: int  # least target tokens that training reads, over all epochs
    layers: tuple[int, int]  # of encoder and decoder
    d_model: int
    num_heads: int
    d_ff: int
    vocab_size: int  # at most: text with few words gets fewer tokens
    batch_tokens: int
    peak_learning_rate: float
    max_epochs: int


SIZES = (
    Size("tiny", 0, 0, (2, 2), 64, 4, 256, 1_000, 1_024, 0.004, 200),
    Size("small", 20_000, 400_000, (3, 2), 128, 4, 512, 4_000, 1_024, 0.004, 150),
    Size("medium", 300_000, 5_000_000, (4, 4), 128, 4, 640, 6_000, 2_048, 0.003, 80),
    Size("large", 1_200_000, 8_000_000, (4, 4), 256, 4, 1_024, 8_000, 4_096, 0.002, 30),
    Size("base", 3_000_000, 60_000_000, (6, 6), 512, 4, 1_024, 10_000, 4_096, 0.0005, 30),
    Size("big", 50_000_000, 300_000_000, (6, 6), 512, 8, 2_048, 37_000, 25_000, 0.0007, 15),
)
"""All sizes, the smallest first. `small` is the model of configs/small.yaml, the following ones are
those of the presets multi30k, tatoeba, iwslt14 and wmt14 (in pre-norm)."""

DROPOUT = ((15, 0.1), (40, 0.2), (math.inf, 0.3))
"""Dropout by the number of epochs: the first row whose number is not exceeded."""

FILL = 0.75
"""Approximate target tokens of a batch per padded token."""

BYTES_PER_TOKEN = 4
"""Approximate bytes of UTF-8 text per token."""

STEPS_SHARE = 0.85
START_SECONDS = 15
"""Share of the time that is spent in steps, not in validations; time for building graphs."""

MIN_STEPS = 100
"""A training run of fewer steps learns nothing."""

BASE_TOKENS = 261
"""Bytes, special tokens, and the mark of a space."""

WORDS_PER_TOKEN = 5
"""Distinct words of the text per token of the vocabulary."""

MAX_WORDS = 200_000
"""Distinct words that are counted. More do not change the vocabulary of any size."""


class Text(NamedTuple):
    """The amount of training text, before it is cleaned and tokenized."""

    pairs: int
    target_tokens: int  # an estimate, with EOS
    characters: int  # distinct ones, of both sides
    words: int  # distinct ones, of both sides
    targets: int = 1  # target languages


class Choice(NamedTuple):
    """The chosen size."""

    config: Config
    name: str
    steps: int  # expected
    epochs: float  # expected

    def summary(self) -> Iterator[str]:
        """Yield a line about the model and a line about the schedule."""
        config = self.config
        model, training = config.model, config.training
        yield (
            f"size {self.name}: {model.num_encoder_layers}+{model.num_decoder_layers} layers, "
            f"d_model {model.d_model}, d_ff {model.d_ff}, vocabulary "
            f"{config.tokenizer.vocab_size:,}, batches of {config.data.batch_tokens} padded tokens"
        )
        yield (
            f"about {self.steps:,} steps, {self.epochs:.1f} epochs: dropout {model.dropout}, "
            f"warm-up {training.warmup_steps:,}, validation every {training.validation_steps:,}, "
            f"checkpoint every {training.checkpoint_steps:,}; --set changes any of these"
        )


def size_run(config: Config, data_dir: Path, run: Run | None = None) -> Config:
    """Return the configuration of a training run on your own data, with all sizes.

    A run that exists keeps its config.yaml, except for the keys that are set.

    Args:
        config: The keys that the user set, without a preset.
        data_dir: The folder of the corpora.
        run: The run folder, if any.

    Raises:
        UserError: The text cannot be read, or the time is too short.
    """
    explicit = config.model_dump(exclude_unset=True)
    if run is not None and run.exists():
        log(f"{run.path}: exists; its config.yaml gives all sizes")
        return build_config(merge(run.config().model_dump(), explicit))
    explicit = merge(_sizes_of_other_run(config), explicit)
    text = measure_text(_training_pairs(config, data_dir))
    text = text._replace(targets=len(config.data.targets))
    log(f"{text.pairs:,} pairs, about {text.target_tokens:,} target tokens")
    choice = choose(explicit, text)
    if config.training.max_minutes is not None:
        if is_distributed():
            raise UsageError(
                "training.max_minutes: sizes by time need a single host; give a --config"
            )
        log("measuring the speed of training on this machine")
        choice = choose(explicit, text, measured_speed(choice.config))
    for line in choice.summary():
        log(line)
    return choice.config


def _sizes_of_other_run(config: Config) -> Tree:
    """Return the sizes that training takes over from another run with its weights or tokenizer."""
    name = config.training.init_from or config.tokenizer.from_run
    if name is None:
        return {}
    other = Run(Path(name)).config()
    tree: Tree = {"tokenizer": {"vocab_size": other.tokenizer.vocab_size}}
    return tree | {"model": other.model.model_dump()} if config.training.init_from else tree


def _training_pairs(config: Config, data_dir: Path) -> Iterator[Pair]:
    """Yield the training pairs of all directions."""
    data = config.data
    corpus = open_corpus(data, config.training.seed, data_dir)
    check_files(corpus, "train", split_name(data, corpus, "val"))
    errors = "surrogateescape" if config.cleaning.broken else "strict"
    parts = by_direction(data, corpus).values()
    pairs = chain.from_iterable(islice(p.pairs("train", errors), data.max_pairs) for p in parts)
    return progress_bar(pairs, "counting", "pairs")


def measure_text(pairs: Iterable[Pair]) -> Text:
    """Count pairs, distinct characters and words, and estimate the target tokens."""
    count = size = 0
    characters: set[str] = set()
    words: set[str] = set()
    for pair in pairs:
        count += 1
        size += len(pair[1].encode(errors="surrogatepass"))  # preparing reports surrogates
        for side in pair:
            characters.update(side)
            if len(words) < MAX_WORDS:
                words.update(re.findall(r"\w+", side))
    return Text(count, size // BYTES_PER_TOKEN + count, len(characters), len(words))


def choose(explicit: Tree, text: Text, speed: float | None = None) -> Choice:
    """Choose the largest size that the text and the time allow.

    Args:
        explicit: The keys that the user set, as a tree. They win.
        text: The amount of text.
        speed: The speed of training, in weights times padded tokens per second. None leaves the
            time out of account.

    Raises:
        UsageError: The time is too short, or keys are invalid together.
    """
    sizes = [size for size in SIZES if size.text_tokens <= text.target_tokens]
    if speed is not None:
        sizes = [size for size in sizes if _is_trained_enough(size, explicit, speed)]
    choice = _schedule(sizes[-1], explicit, text, speed)
    if speed is not None:
        _check_time(choice.config, speed)
    return choice


def _schedule(size: Size, explicit: Tree, text: Text, speed: float | None) -> Choice:
    """Return a size with warm-up, intervals and dropout for the expected number of steps."""
    shape = _shape(size, explicit, _vocabulary(size, text))
    config = build_config(shape)
    steps = expected_steps(config, text.target_tokens, size.max_epochs, speed)
    epochs = steps / _steps_per_epoch(config, text.target_tokens)
    training = {
        "warmup_steps": _bounded(steps // 10, 4_000),
        "validation_steps": _bounded(steps // 4, 2_000),
        # The average of five checkpoints covers an eighth of the run: before, it still learns fast.
        "checkpoint_steps": _bounded(steps // 40, 1_000),
    }
    dropout = next(dropout for most, dropout in DROPOUT if epochs <= most)
    tree = merge(shape, {"model": {"dropout": dropout}, "training": training}, explicit)
    # So that the peak does not depend on the warm-up: it is scale * (d_model * warm-up)^-0.5.
    warmup_steps = tree["training"]["warmup_steps"]
    scale = size.peak_learning_rate * math.sqrt(config.model.d_model * warmup_steps)
    rate = {"training": {"learning_rate_scale": round(scale, 3)}}
    return Choice(build_config(merge(tree, rate, explicit)), size.name, steps, epochs)


def _shape(size: Size, explicit: Tree, vocab_size: int) -> Tree:
    """Return the keys that do not depend on the number of steps, with those that the user set."""
    max_length = explicit.get("data", {}).get("max_length", 0)
    tree: Tree = {
        "data": {"batch_tokens": max(size.batch_tokens, max_length)},
        "tokenizer": {"vocab_size": vocab_size},
        "model": {
            "num_encoder_layers": size.layers[0],
            "num_decoder_layers": size.layers[1],
            "d_model": size.d_model,
            "num_heads": size.num_heads,
            "d_ff": size.d_ff,
        },
        "training": {"max_epochs": size.max_epochs},
    }
    return merge(tree, explicit)


def _vocabulary(size: Size, text: Text) -> int:
    """Return a vocabulary that the text can fill with tokens that are not rare.

    It always has bytes, characters and special tokens. Each word allows at least one more token.
    """
    least = BASE_TOKENS + text.targets + text.characters
    return max(least, min(size.vocab_size, least + text.words // WORDS_PER_TOKEN))


def expected_steps(
    config: Config, target_tokens: int, max_epochs: int, speed: float | None = None
) -> int:
    """Return the number of steps until the first limit, apart from early stopping.

    Args:
        config: The configuration of the training run.
        target_tokens: The target tokens of the training text.
        max_epochs: The end of a training run without another limit.
        speed: The speed of training, in weights times padded tokens per second. None leaves the
            time out of account.
    """
    training, steps_per_epoch = config.training, _steps_per_epoch(config, target_tokens)
    limits: list[float] = []
    if training.max_steps is not None:
        limits.append(training.max_steps)
    if training.max_epochs is not None:
        limits.append(training.max_epochs * steps_per_epoch)
    if training.max_tokens is not None:
        limits.append(training.max_tokens / (FILL * batch_tokens(config)))
    if speed is not None:
        limits.append(_steps_in_time(config, speed))
    return max(1, int(min(limits, default=max_epochs * steps_per_epoch)))


def _steps_per_epoch(config: Config, target_tokens: int) -> int:
    return max(1, math.ceil(target_tokens / (FILL * batch_tokens(config))))


def _steps_in_time(config: Config, speed: float) -> float:
    """Return the number of steps in `training.max_minutes`."""
    minutes = config.training.max_minutes
    assert minutes is not None
    return max(0.0, 60 * STEPS_SHARE * minutes - START_SECONDS) * speed / step_work(config)


def _is_trained_enough(size: Size, explicit: Tree, speed: float) -> bool:
    """Return whether training reads the least tokens of a size in the time.

    It does not depend on the text, so that more text never gives a smaller model.
    """
    config = build_config(_shape(size, explicit, size.vocab_size))
    return _steps_in_time(config, speed) * FILL * batch_tokens(config) >= size.read_tokens


def _check_time(config: Config, speed: float) -> None:
    """Raise a UsageError if the time is too short for any training."""
    steps = _steps_in_time(config, speed)
    if steps < MIN_STEPS:
        least = (MIN_STEPS * step_work(config) / speed + START_SECONDS) / (60 * STEPS_SHARE)
        raise UsageError(
            f"training.max_minutes={config.training.max_minutes:g}: enough for {steps:.0f} steps "
            f"on this machine, which learn nothing; use --minutes={math.ceil(10 * least) / 10:g}"
        )


def _bounded(steps: int, most: int) -> int:
    return max(1, min(steps, most))
