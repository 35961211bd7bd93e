"""The sizes of a training run on your own data."""

import math
from itertools import pairwise
from typing import Any

import pytest

from tfnmt.config import Config, build_config, flatten, preset_path, read_tree
from tfnmt.data.preparation.tokenizer import Tokenizer, train_tokenizer
from tfnmt.errors import UsageError
from tfnmt.training.sizing import BASE_TOKENS, SIZES, Choice, Text, choose, measure_text
from tfnmt.training.speed import batch_tokens, weight_count

OWN_DATA: dict[str, Any] = {"data": {"corpus": None, "train": ("my.en", "my.de")}}
TEXTS = [
    Text(pairs, 12 * pairs, characters=100, words=int(50 * pairs**0.6))
    for pairs in (1, 100, 1_000, 5_000, 40_000, 150_000, 1_000_000, 10_000_000)
]
MINUTES = (1, 3, 10, 30, 120, 1_000)
TWO_CORES, GPU = 3e10, 3e12
"""Speeds in weights times padded tokens per second."""


def chosen(text: Text, minutes: float | None = None, speed: float = TWO_CORES) -> Choice:
    if minutes is None:
        return choose(OWN_DATA, text)
    return choose(OWN_DATA | {"training": {"max_minutes": minutes}}, text, speed)


def sizes_of(config: Config) -> tuple[object, ...]:
    """Return the sizes of a preset that a row of SIZES takes over."""
    model = config.model
    layers = model.num_encoder_layers, model.num_decoder_layers
    return layers, model.d_model, model.num_heads, model.d_ff, config.tokenizer.vocab_size


@pytest.mark.parametrize("minutes", [None, *MINUTES])
def test_more_text_never_gives_a_smaller_model(minutes: float | None) -> None:
    weights = [weight_count(chosen(text, minutes).config) for text in TEXTS]
    assert weights == sorted(weights)
    assert weights[0] < weights[-1] or minutes == 1


@pytest.mark.parametrize("speed", [TWO_CORES, GPU])
@pytest.mark.parametrize("text", TEXTS)
def test_more_time_never_gives_a_smaller_model(text: Text, speed: float) -> None:
    timed = [chosen(text, minutes, speed) for minutes in MINUTES]
    for less, more in pairwise([*timed, chosen(text)]):
        assert weight_count(less.config) <= weight_count(more.config)


@pytest.mark.parametrize("minutes", [None, *MINUTES])
@pytest.mark.parametrize("text", TEXTS)
def test_warmup_and_first_validation_fall_within_the_run(text: Text, minutes: float | None) -> None:
    """Also if the machine is three times slower than measured."""
    choice = chosen(text, minutes)
    training = choice.config.training
    assert 3 * training.warmup_steps <= choice.steps
    assert 3 * training.validation_steps <= choice.steps
    assert training.average_last * training.checkpoint_steps <= choice.steps


def test_time_limits_the_size_and_the_steps() -> None:
    text = TEXTS[5]
    names = [chosen(text, minutes).name for minutes in (*MINUTES, None)]
    assert names == ["small", "small", "small", "medium", "large", "large", "large"]
    choice = chosen(text, 10)
    padded_tokens = choice.steps * batch_tokens(choice.config)
    assert 0.7 < padded_tokens * weight_count(choice.config) / (600 * TWO_CORES) < 1


@pytest.mark.parametrize(
    ("name", "preset"),
    [
        ("small", "small"),
        ("medium", "multi30k"),
        ("large", "tatoeba"),
        ("base", "iwslt14"),
        ("big", "wmt14"),
    ],
)
def test_sizes_are_those_of_presets(name: str, preset: str) -> None:
    (size,) = [size for size in SIZES if size.name == name]
    config = build_config(read_tree(preset_path(preset)))
    sizes = size.layers, size.d_model, size.num_heads, size.d_ff, size.vocab_size
    assert sizes == sizes_of(config)


@pytest.mark.parametrize("speed", [None, TWO_CORES])
def test_every_key_that_is_set_wins(speed: float | None) -> None:
    explicit = {
        "data": {**OWN_DATA["data"], "batch_tokens": 3000, "max_length": 99},
        "tokenizer": {"vocab_size": 777},
        "model": {"d_model": 48, "num_heads": 3, "d_ff": 96, "dropout": 0.05},
        "training": {
            "max_minutes": 10.0,
            "max_epochs": 7,
            "warmup_steps": 11,
            "learning_rate_scale": 0.5,
            "validation_steps": 13,
            "checkpoint_steps": 17,
        },
    }
    config = flatten(choose(explicit, TEXTS[3], speed).config)
    for section, keys in explicit.items():
        for key, value in keys.items():
            assert config[f"{section}.{key}"] == (list(value) if key == "train" else value)


def test_limit_that_is_set_shortens_the_schedule() -> None:
    for limit in ({"max_steps": 600}, {"max_tokens": 600 * 768}):
        choice = choose(OWN_DATA | {"training": limit}, TEXTS[3])
        assert choice.steps == 600
        assert choice.config.training.warmup_steps == 60


def test_early_stopping_alone_leaves_the_schedule_of_the_size() -> None:
    training = {"max_epochs": None, "patience": 5}
    assert choose(OWN_DATA | {"training": training}, TEXTS[3]).steps == chosen(TEXTS[3]).steps


def test_peak_learning_rate_does_not_depend_on_the_warmup() -> None:
    for warmup_steps in (10, 1000):
        tree = OWN_DATA | {"training": {"warmup_steps": warmup_steps}}
        config = choose(tree, TEXTS[3]).config
        peak = config.training.learning_rate_scale / math.sqrt(config.model.d_model * warmup_steps)
        assert peak == pytest.approx(0.004, rel=0.02)


def test_batch_holds_a_sentence_of_the_maximum_length() -> None:
    tree = {"data": {**OWN_DATA["data"], "max_length": 5000}}
    assert choose(tree, TEXTS[2]).config.data.batch_tokens == 5000


def test_time_that_is_too_short_is_refused_with_a_longer_one() -> None:
    with pytest.raises(UsageError) as caught:
        chosen(TEXTS[3], 0.1)
    (problem,) = caught.value.problems
    assert problem.startswith("training.max_minutes=0.1: enough for 0 steps on this machine, ")
    minutes = float(problem.rpartition("--minutes=")[2])
    assert chosen(TEXTS[3], minutes).steps >= 100


@pytest.mark.parametrize(
    "lines",
    [
        ["3 1 4 1 5", "9 2 6 5 3"],
        ["The same words are here.", "The same words are here!"],
        ["我们今天去学校。", "他昨天没有来吗?", "她喜欢喝茶。"],
    ],
    ids=["digits", "few words", "no spaces"],
)
def test_vocabulary_fits_a_text_of_few_words(lines: list[str]) -> None:
    text = measure_text([(line, line) for line in lines] * 50)
    config = choose(OWN_DATA, text).config.tokenizer
    assert Tokenizer(train_tokenizer(lines * 50, config)).vocab_size == config.vocab_size


def test_text_is_measured_in_pairs_tokens_characters_and_words() -> None:
    text = measure_text([("a dog", "ein Hund"), ("a cat", "eine Katze")])
    assert text == Text(2, 18 // 4 + 2, len(set("a dog ein Hund cat eine Katze")), 7)


def test_text_with_surrogates_is_measured() -> None:
    """JSON can contain unpaired ones, and bytes that are not UTF-8 become others."""
    assert measure_text([("a", "\ud800"), ("b", "\udce9")]).pairs == 2


def test_vocabulary_has_room_for_language_tokens() -> None:
    languages = [*"abcdefghijkl"]
    text = measure_text([("aha", "oh")] * 50)._replace(targets=len(languages))
    config = choose(OWN_DATA, text).config.tokenizer
    tokenizer = Tokenizer(train_tokenizer(["aha", "oh"] * 50, config, languages))
    assert tokenizer.vocab_size == config.vocab_size


def test_small_text_has_a_small_vocabulary() -> None:
    config = choose(OWN_DATA, Text(5_000, 60_000, characters=90, words=5_000)).config
    assert config.tokenizer.vocab_size == BASE_TOKENS + 1 + 90 + 1_000
