import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

import tfnmt
from tfnmt.config import (
    Config,
    Tree,
    build_config,
    differing_keys,
    dump_config,
    flatten,
    merge,
    parse_overrides,
    preset_names,
    preset_path,
    read_tree,
)
from tfnmt.errors import UsageError

REPOSITORY = Path(tfnmt.__file__).resolve().parent.parent

PAPER_BASE = {
    "data.corpus": "wmt14",
    "data.source": "en",
    "data.target": "de",
    "data.batch_tokens": 25000,
    "data.max_pairs": None,
    "data.bpe_dropout": 0.0,
    "tokenizer.vocab_size": 37000,
    "tokenizer.normalization": "identity",
    "model.num_encoder_layers": 6,
    "model.num_decoder_layers": 6,
    "model.d_model": 512,
    "model.num_heads": 8,
    "model.d_ff": 2048,
    "model.dropout": 0.1,
    "model.attention_dropout": 0.0,
    "model.ffn_dropout": 0.0,
    "model.activation": "relu",
    "model.norm_first": False,
    "model.tie_embeddings": "all",
    "training.max_steps": 100_000,
    "training.max_epochs": None,
    "training.max_minutes": None,
    "training.warmup_steps": 4000,
    "training.learning_rate_scale": 1.0,
    "training.adam_beta_1": 0.9,
    "training.adam_beta_2": 0.98,
    "training.adam_epsilon": 1e-9,
    "training.clip_norm": None,
    "training.label_smoothing": 0.1,
    "training.average_last": 5,
    "decoding.beam_size": 4,
    "decoding.length_penalty": 0.6,
    "decoding.max_extra_length": 50,
}
"""Sections 5 and 6.1 of "Attention Is All You Need", and the first row of its Table 3."""

PAPER_BIG = PAPER_BASE | {
    "model.d_model": 1024,
    "model.num_heads": 16,
    "model.d_ff": 4096,
    "model.dropout": 0.3,
    "training.max_steps": 300_000,
    "training.average_last": 20,
}
"""The last row of Table 3."""

INVALID = {
    "wrong type": ({"model": {"d_model": "wide"}}, "model.d_model: 'wide' is invalid; "),
    "fraction of a layer": (
        {"model": {"num_encoder_layers": 1.5}},
        "model.num_encoder_layers: 1.5 ",
    ),
    "below the minimum": ({"model": {"num_encoder_layers": 0}}, "model.num_encoder_layers: 0 "),
    "above the maximum": ({"model": {"dropout": 1.0}}, "model.dropout: 1.0 "),
    "odd width": ({"model": {"d_model": 7, "num_heads": 1}}, "model.d_model: 7 "),
    "infinite": ({"training": {"adam_epsilon": float("inf")}}, "training.adam_epsilon: inf "),
    "no file": ({"data": {"corpus": None, "train": []}}, "data.train: [] "),
    "no validation file": (
        {"data": {"corpus": None, "train": ["a.tsv"], "val": []}},
        "data.val: [] ",
    ),
    "all merges skipped": ({"data": {"bpe_dropout": 1.0}}, "data.bpe_dropout: 1.0 "),
    "no characters": ({"cleaning": {"max_characters": 0}}, "cleaning.max_characters: 0 "),
    "ratio below 1": ({"cleaning": {"max_ratio": 0.9}}, "cleaning.max_ratio: 0.9 "),
    "rule that is not a boolean": (
        {"cleaning": {"empty": "perhaps"}},
        "cleaning.empty: 'perhaps' ",
    ),
    "invalid language": (
        {"data": {"source": "../en"}},
        "data.source: '../en' is invalid; it must be a letter, then letters, digits or underscores",
    ),
    "small vocabulary": ({"tokenizer": {"vocab_size": 261}}, "tokenizer.vocab_size: 261 "),
    "wrong choice": (
        {"model": {"activation": "tanh"}},
        "model.activation: 'tanh' is invalid; it must be 'relu' or 'gelu'",
    ),
    "number as a section": ({"model": 3}, "model: 3 is invalid; it must be a section"),
    "heads": (
        {"model": {"d_model": 100, "num_heads": 8}},
        "model: num_heads 8 does not divide d_model 100; ",
    ),
    "averaging more checkpoints than are kept": (
        {"training": {"keep_last": 4, "average_last": 5}},
        "training: keep_last 4 is less than average_last 5; ",
    ),
    "endless": (
        {"training": {"max_epochs": None, "max_steps": None, "max_minutes": None}},
        "training: has no end; set max_steps, max_epochs, max_tokens, max_minutes or patience",
    ),
    "batch smaller than a pair": (
        {"data": {"batch_tokens": 127, "max_length": 128}},
        "data: batch_tokens 127 is less than max_length 128; ",
    ),
    "batch size that is not a number": (
        {"data": {"batch_tokens": "many"}},
        "data.batch_tokens: 'many' is invalid; it must be 1 or greater, or 'auto'",
    ),
    "empty batch": (
        {"data": {"batch_tokens": 0}},
        "data.batch_tokens: 0 is invalid; it must be 1 or greater, or 'auto'",
    ),
    "same language twice": (
        {"data": {"source": "de", "target": "de"}},
        "data: source and target are both 'de'; ",
    ),
    "corpus and train": (
        {"data": {"corpus": "toy", "train": ["a", "b"]}},
        "data: corpus and train are both set; ",
    ),
    "neither corpus nor train": (
        {"data": {"corpus": None}},
        "data: corpus and train are both null; ",
    ),
    "val without train": ({"data": {"val": ["a", "b"]}}, "data: val is set without train; "),
}

VALID: dict[str, Tree] = {
    "number of heads that divides d_model": {"model": {"d_model": 96, "num_heads": 8}},
    "averaging all checkpoints that are kept": {"training": {"keep_last": 5, "average_last": 5}},
    "only max_steps": {"training": {"max_epochs": None, "max_steps": 1}},
    "only max_minutes": {"training": {"max_epochs": None, "max_minutes": 0.5}},
    "automatic batch size": {"data": {"batch_tokens": "auto"}},
    "batch of one pair": {"data": {"batch_tokens": 128, "max_length": 128}},
    "custom data": {"data": {"corpus": None, "train": ["a", "b"], "val": ["c", "d"]}},
    "custom data in one file": {"data": {"corpus": None, "train": ["a.tsv"]}},
    "custom data in several files": {
        "data": {"corpus": None, "train": ["a", "b", "c.tmx"], "val": ["d"]}
    },
    "rules with their minimum": {"cleaning": {"max_characters": 1, "max_ratio": 1}},
    "no rules": {"cleaning": {"empty": False, "leakage": False}},
    "empty section": {"model": None},
    "nothing": {},
}

INVALID_FILES = {
    "not YAML": ("model: [1, 2", "invalid YAML"),
    "tabs": ("model:\n\td_model: 8\n", "invalid YAML"),
    "invalid date": ("training: {seed: 2001-99-99}\n", "invalid YAML"),
    "list": ("- model\n- data\n", "sections with keys"),
    "word": ("model\n", "sections with keys"),
}


def problems(tree: Tree) -> tuple[str, ...]:
    with pytest.raises(UsageError) as caught:
        build_config(tree)
    return caught.value.problems


def test_merge_replaces_only_the_keys_of_later_trees() -> None:
    preset = {"model": {"d_model": 512, "num_heads": 8}, "data": {"corpus": "wmt14"}}
    flags = {"data": {"source": "fr"}, "model": {"num_heads": 4}}
    overrides = parse_overrides(["model.num_heads=2", "data.target=en"])
    assert merge(preset, flags, overrides) == {
        "model": {"d_model": 512, "num_heads": 2},
        "data": {"corpus": "wmt14", "source": "fr", "target": "en"},
    }


def test_merge_replaces_an_empty_section() -> None:
    assert merge({"data": None}, {"data": {"source": "fr"}}) == {"data": {"source": "fr"}}


def test_merge_does_not_change_its_arguments() -> None:
    preset: Tree = {"model": {"d_model": 512}}
    merge(preset, {"model": {"d_model": 8}})
    assert preset == {"model": {"d_model": 512}}


def test_override_may_be_null() -> None:
    tree = merge({"training": {"max_epochs": 3}}, parse_overrides(["training.max_epochs=null"]))
    assert tree == {"training": {"max_epochs": None}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("training.max_steps=100", 100),
        ("training.max_epochs=null", None),
        ("training.adam_epsilon=1e-9", 1e-9),
        ("training.adam_epsilon=1.0e-9", 1e-9),
        ("training.learning_rate_scale=2", 2.0),
        ("model.norm_first=false", False),
        ("model.activation=gelu", "gelu"),
        ("data.source='no'", "no"),
        (" model.d_ff = 7", 7),
    ],
)
def test_override_value_is_yaml(text: str, value: object) -> None:
    tree = merge({"training": {"max_minutes": 1}}, parse_overrides([text]))
    key = text.partition("=")[0].strip()
    parsed = flatten(build_config(tree))[key]
    assert parsed == value
    assert type(parsed) is type(value)


def test_override_may_be_a_list() -> None:
    config = build_config(parse_overrides(["data.corpus=null", "data.train=[my.en, my.de]"]))
    assert config.data.train == ("my.en", "my.de")


def test_override_value_may_contain_equals_signs() -> None:
    assert parse_overrides(["data.train=[a=b.en, a=b.de]"]) == {
        "data": {"train": ["a=b.en", "a=b.de"]}
    }


def test_last_override_of_a_key_wins() -> None:
    overrides = parse_overrides(["model.d_ff=1", "model.d_model=4", "model.d_ff=2"])
    assert overrides == {"model": {"d_ff": 2, "d_model": 4}}


def test_every_malformed_override_is_reported() -> None:
    with pytest.raises(UsageError) as caught:
        parse_overrides(["model.d_ff", "d_ff=3", ".d_ff=3", "model.=3", "model.d_ff=[", "data.a=1"])
    lines = caught.value.problems
    assert [line.split(":")[0] for line in lines] == [
        "--set model.d_ff",
        "--set d_ff=3",
        "--set .d_ff=3",
        "--set model.=3",
        "--set model.d_ff=[",
    ]
    assert all("; " in line for line in lines)


@pytest.mark.parametrize("value", ["2001-99-99", "0x_"])
def test_override_with_an_invalid_date_or_number_is_refused(value: str) -> None:
    with pytest.raises(UsageError, match=r"--set training\.seed="):
        parse_overrides([f"training.seed={value}"])


@pytest.mark.parametrize(("tree", "start"), INVALID.values(), ids=INVALID.keys())
def test_invalid_value_is_reported_with_its_key(tree: Tree, start: str) -> None:
    lines = problems(tree)
    assert len(lines) == 1
    assert lines[0].startswith(start)
    assert "; " in lines[0]


@pytest.mark.parametrize("value", ["true", "false"])
def test_only_boolean_keys_accept_true_or_false(value: str) -> None:
    for key, default in flatten(Config()).items():
        if not isinstance(default, bool):
            (line,) = problems(parse_overrides([f"{key}={value}"]))
            assert line.startswith(f"{key}: {value.title()} is ")


@pytest.mark.parametrize(
    "key", ["decoding.beam_size", "decoding.length_penalty", "model.dropout", "training.max_steps"]
)
def test_boolean_for_a_number_asks_for_a_number(key: str) -> None:
    (line,) = problems(parse_overrides([f"{key}=true"]))
    assert line == f"{key}: True is invalid; it must be a number"


@pytest.mark.parametrize("tree", VALID.values(), ids=VALID.keys())
def test_valid_configuration_is_accepted(tree: Tree) -> None:
    assert isinstance(build_config(tree), Config)


def test_all_problems_are_reported_together() -> None:
    lines = problems(
        {
            "modle": {},
            "data": {"source": "de", "target": "de"},
            "model": {"d_modle": 8, "dropout": "much", "activation": "rleu"},
            "training": {"keep_last": 1},
            "decoding": {"beam_size": 0},
        }
    )
    assert sorted(line.split(":")[0] for line in lines) == [
        "data",
        "decoding.beam_size",
        "model.activation",
        "model.d_modle",
        "model.dropout",
        "modle",
        "training",
    ]
    assert not any("\n" in line for line in lines)


def test_all_conflicts_within_a_section_are_reported_together() -> None:
    lines = problems({"data": {"source": "de", "target": "de", "batch_tokens": 3}})
    assert len(lines) == 2
    assert lines[0].startswith("data: source and target are both 'de'")
    assert lines[1].startswith("data: batch_tokens 3 is less than max_length")


@pytest.mark.parametrize(
    ("tree", "hint"),
    [
        ({"model": {"num_head": 8}}, "model.num_head: unknown key; did you mean num_heads? "),
        ({"trainning": {}}, "trainning: unknown key; did you mean training? "),
        (
            {"data": {"xyz": 1}},
            "data.xyz: unknown key; choose one of corpus, source, target, train",
        ),
    ],
)
def test_unknown_key_suggests_a_known_key(tree: Tree, hint: str) -> None:
    assert problems(tree)[0].startswith(hint)


@pytest.mark.parametrize(("text", "problem"), INVALID_FILES.values(), ids=INVALID_FILES.keys())
def test_invalid_file_is_named(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "my.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=problem) as caught:
        read_tree(path)
    assert len(caught.value.problems) == 1
    assert caught.value.problems[0].startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["training: {seed: 3, seed: 4}", "data: {}\ntraining: {}\ndata: {}"]
)
def test_duplicate_key_is_reported(tmp_path: Path, text: str) -> None:
    (tmp_path / "f.yaml").write_text(text)
    with pytest.raises(UsageError, match=r"duplicate key (seed|data) .*line [13]"):
        read_tree(tmp_path / "f.yaml")


def test_yaml_merge_keys_are_not_duplicates(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text(
        "a: &a {seed: 3}\nb: {inner: &b {<<: *a, seed: 4}}\nc: {<<: *b, seed: 5}\n"
    )
    tree = read_tree(tmp_path / "f.yaml")
    assert (tree["b"], tree["c"]) == ({"inner": {"seed": 4}}, {"seed": 5})


def test_file_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_bytes("data: {source: dé}".encode("latin-1"))
    with pytest.raises(UsageError, match=r"my\.yaml: not UTF-8"):
        read_tree(path)


def test_endless_file_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^/dev/zero: too long"):
        read_tree(Path("/dev/zero"))


@pytest.mark.parametrize("name", ["none.yaml", "."])
def test_missing_file_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="; choose a YAML file") as caught:
        read_tree(tmp_path / name)
    assert str(caught.value).startswith(f"{tmp_path / name}: ")


@pytest.mark.parametrize("text", ["", "# empty\n", "model:\n"])
def test_empty_file_gives_the_defaults(tmp_path: Path, text: str) -> None:
    path = tmp_path / "my.yaml"
    path.write_text(text)
    assert build_config(read_tree(path)) == Config()


@pytest.mark.parametrize(
    "tree",
    [
        {},
        {"data": {"corpus": None, "train": ["Ü 1.en", "Ü 1.de"], "val": ["v.en", "v.de"]}},
        {"data": {"corpus": None, "train": ["a.tsv"], "bpe_dropout": 0.1}},
        {"cleaning": {"broken": True, "max_characters": 900, "max_ratio": 1.5}},
        {"training": {"adam_epsilon": 1e-12, "max_epochs": None, "max_minutes": 0.1}},
        {"data": {"source": "no", "target": "yes", "max_pairs": 5}},
    ],
)
def test_dumped_configuration_is_read_back_unchanged(tmp_path: Path, tree: Tree) -> None:
    config = build_config(tree)
    path = tmp_path / "config.yaml"
    path.write_text(dump_config(config), encoding="utf-8")
    assert build_config(read_tree(path)) == config


def test_differing_keys_lists_exactly_the_different_keys() -> None:
    overrides = ["model.d_model=128", "data.max_pairs=7", "training.seed=1"]
    other = build_config(parse_overrides(overrides))
    assert differing_keys(Config(), other) == ["data.max_pairs", "model.d_model"]
    assert differing_keys(other, other) == []


def test_every_preset_is_valid() -> None:
    files = (REPOSITORY / "configs").glob("*.yaml")
    assert preset_names() == sorted(file.stem for file in files)
    for name in preset_names():
        assert isinstance(build_config(read_tree(preset_path(name))), Config)


def test_unknown_preset_lists_the_presets() -> None:
    with pytest.raises(UsageError, match=r"--dataset=wmt41: .*did you mean wmt14\? ") as caught:
        preset_path("wmt41")
    assert str(caught.value).endswith(f"choose one of {', '.join(preset_names())}")


@pytest.mark.parametrize(("name", "values"), [("wmt14", PAPER_BASE), ("wmt14-big", PAPER_BIG)])
def test_paper_presets_have_the_values_of_the_paper(name: str, values: dict[str, Any]) -> None:
    preset = flatten(build_config(read_tree(preset_path(name))))
    assert {key: preset[key] for key in values} == values


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


def test_configuration_does_not_import_tensorflow() -> None:
    heavy = ("tensorflow", "keras", "keras_nlp")
    script = f"import sys, tfnmt.config; sys.exit(any(name in sys.modules for name in {heavy}))"
    done = subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, check=False)
    assert done.returncode == 0


# --- Files of any shape ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "[" * 5000,
        "!!int ''",
        "!!bool x",
        "!!timestamp x",
        "? {}\n: 1",
        "data: [1]",
        "data: text",
        "1: 2",
        "null: 1",
    ],
)
def test_file_of_the_wrong_shape_is_an_error_that_names_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=f"^{path}: "):
        read_tree(path)


def test_integer_above_64_bits_is_refused() -> None:
    for value in (10**30, str(10**30)):
        with pytest.raises(UsageError, match=r"^data\.max_pairs: '?10{10}.* or less$"):
            build_config({"data": {"max_pairs": value}})


def test_huge_invalid_value_is_shortened_in_the_message() -> None:
    value: object = "x"
    for _ in range(9):
        value = [value] * 10  # 10**9 strings, as with aliases in YAML
    with pytest.raises(UsageError, match=r"^data\.source: ") as caught:
        build_config({"data": {"source": value}})
    assert len(str(caught.value)) < 10_000
