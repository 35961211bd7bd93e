import pytest
from pydantic import ValidationError

from tfnmt.config import Config, build_config
from tfnmt.errors import UsageError


def test_max_translation_length_is_the_limit_of_the_longest_source() -> None:
    limits = {"max_source_length": 20, "max_extra_length": 10}
    for changes, expected in ({}, 30), ({"max_length": 7}, 7), ({"min_length": 29}, 30):
        decoding = build_config({"decoding": limits | changes}).decoding
        assert decoding.max_translation_length == expected


@pytest.mark.parametrize(
    ("key", "limit"),
    [
        ("beam_size", 1000),
        ("max_source_length", 100_000),
        ("max_extra_length", 100_000),
        ("max_length", 100_000),
        ("no_repeat_ngram", 100),
    ],
)
def test_decoding_has_limits_that_fit_into_memory(key: str, limit: int) -> None:
    build_config({"decoding": {key: limit}})
    for value in (limit + 1, 10**20):
        with pytest.raises(UsageError, match=rf"^decoding\.{key}: {value} .* {limit} or less"):
            build_config({"decoding": {key: value}})


def test_min_length_must_leave_room_for_eos() -> None:
    limits = {"max_source_length": 20, "max_extra_length": 10}
    for changes in {"min_length": 30}, {"min_length": 100_000}, {"min_length": 7, "max_length": 7}:
        with pytest.raises(UsageError, match=r"^decoding: .*min_length (30|100000|7)") as caught:
            build_config({"decoding": limits | changes})
        assert len(caught.value.problems) == 1


def test_layer_norm_epsilon_is_that_of_other_engines() -> None:
    assert Config().model.norm_epsilon == 1e-6


@pytest.mark.parametrize("section", Config.model_fields)
def test_configuration_is_immutable(section: str) -> None:
    config = Config()
    keys = getattr(config, section)
    with pytest.raises(ValidationError, match="frozen"):
        setattr(config, section, keys)
    key = next(iter(type(keys).model_fields))
    with pytest.raises(ValidationError, match="frozen"):
        setattr(keys, key, getattr(keys, key))


@pytest.mark.parametrize("section", Config.model_fields)
def test_every_key_has_a_description(section: str) -> None:
    fields = type(getattr(Config(), section)).model_fields
    assert [name for name, field in fields.items() if not field.description] == []


def test_directions_set_source_and_target() -> None:
    data = build_config({"data": {"directions": ["fr-en", "en-de", "de-en"]}}).data
    assert (data.source, data.target) == ("fr", "en")
    assert data.all_directions == ("fr-en", "en-de", "de-en")
    assert data.targets == ("de", "en")


def test_section_of_a_direction_equals_that_of_a_single_direction() -> None:
    data = build_config({"data": {"directions": ["en-de", "de-en"]}}).data
    single = build_config({"data": {"source": "de", "target": "en"}}).data
    assert data.of_direction("de-en") == single
    assert single.all_directions == ("de-en",)


def test_freezing_all_parts_is_refused() -> None:
    parts = ["encoder", "decoder", "embeddings"]
    assert build_config({"training": {"freeze": parts[:2]}}).training.freeze == tuple(parts[:2])
    with pytest.raises(UsageError, match=r"^training: freeze names all parts, so nothing is"):
        build_config({"training": {"freeze": parts}})


def test_r_drop_and_simcut_are_refused_together() -> None:
    with pytest.raises(UsageError, match=r"^training: r_drop and simcut are both set; set one"):
        build_config({"training": {"r_drop": 1, "simcut": 3}})
