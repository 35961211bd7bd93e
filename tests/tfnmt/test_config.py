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

IMPOSSIBLE = {
    "wrong type": ({"model": {"d_model": "wide"}}, "model.d_model: 'wide' is wrong; "),
    "half a layer": ({"model": {"num_encoder_layers": 1.5}}, "model.num_encoder_layers: 1.5 "),
    "below the least": ({"model": {"num_encoder_layers": 0}}, "model.num_encoder_layers: 0 "),
    "above the most": ({"model": {"dropout": 1.0}}, "model.dropout: 1.0 "),
    "odd width": ({"model": {"d_model": 7, "num_heads": 1}}, "model.d_model: 7 "),
    "infinite": ({"training": {"adam_epsilon": float("inf")}}, "training.adam_epsilon: inf "),
    "no file": ({"data": {"corpus": None, "train": []}}, "data.train: [] "),
    "no file to validate on": (
        {"data": {"corpus": None, "train": ["a.tsv"], "val": []}},
        "data.val: [] ",
    ),
    "all merges skipped": ({"data": {"bpe_dropout": 1.0}}, "data.bpe_dropout: 1.0 "),
    "no characters": ({"cleaning": {"max_characters": 0}}, "cleaning.max_characters: 0 "),
    "shorter than itself": ({"cleaning": {"max_ratio": 0.9}}, "cleaning.max_ratio: 0.9 "),
    "a rule that is no switch": ({"cleaning": {"empty": "perhaps"}}, "cleaning.empty: 'perhaps' "),
    "no language": ({"data": {"source": "../en"}}, "data.source: '../en' "),
    "small vocabulary": ({"tokenizer": {"vocab_size": 261}}, "tokenizer.vocab_size: 261 "),
    "wrong choice": (
        {"model": {"activation": "tanh"}},
        "model.activation: 'tanh' is not possible; choose 'relu' or 'gelu'",
    ),
    "section that is none": ({"model": 3}, "model: 3 is wrong; "),
    "heads": (
        {"model": {"d_model": 100, "num_heads": 8}},
        "model: num_heads 8 does not divide d_model 100; ",
    ),
    "averaging more than is kept": (
        {"training": {"keep_last": 4, "average_last": 5}},
        "training: keep_last 4 keeps fewer checkpoints than average_last 5 needs; ",
    ),
    "endless": (
        {"training": {"max_epochs": None, "max_steps": None, "max_minutes": None}},
        "training: nothing ends the training; set max_steps, max_epochs, max_tokens, max_minutes "
        "or patience",
    ),
    "batch smaller than a pair": (
        {"data": {"batch_tokens": 127, "max_length": 128}},
        "data: batch_tokens 127 cannot hold one pair of max_length 128; ",
    ),
    "a batch of what is no number": (
        {"data": {"batch_tokens": "many"}},
        "data.batch_tokens: 'many' is wrong; give a number of 1 or more, or 'auto'",
    ),
    "a batch of nothing": (
        {"data": {"batch_tokens": 0}},
        "data.batch_tokens: 0 is wrong; give a number of 1 or more, or 'auto'",
    ),
    "one language": (
        {"data": {"source": "de", "target": "de"}},
        "data: source and target are both 'de'; ",
    ),
    "corpus and train": ({"data": {"corpus": "toy", "train": ["a", "b"]}}, "data: set either "),
    "neither corpus nor train": ({"data": {"corpus": None}}, "data: set either corpus or train; "),
    "val without train": ({"data": {"val": ["a", "b"]}}, "data: val goes with train; "),
}

POSSIBLE: dict[str, Tree] = {
    "heads that divide": {"model": {"d_model": 96, "num_heads": 8}},
    "averaging all that is kept": {"training": {"keep_last": 5, "average_last": 5}},
    "steps alone": {"training": {"max_epochs": None, "max_steps": 1}},
    "minutes alone": {"training": {"max_epochs": None, "max_minutes": 0.5}},
    "a batch that is yet to be found": {"data": {"batch_tokens": "auto"}},
    "a batch of one pair": {"data": {"batch_tokens": 128, "max_length": 128}},
    "own text": {"data": {"corpus": None, "train": ["a", "b"], "val": ["c", "d"]}},
    "own text in one file": {"data": {"corpus": None, "train": ["a.tsv"]}},
    "own text in many": {"data": {"corpus": None, "train": ["a", "b", "c.tmx"], "val": ["d"]}},
    "rules at their least": {"cleaning": {"max_characters": 1, "max_ratio": 1}},
    "no rules": {"cleaning": {"empty": False, "leakage": False}},
    "empty section": {"model": None},
    "nothing": {},
}

NOT_A_CONFIGURATION = {
    "not YAML": ("model: [1, 2", "cannot be read as YAML"),
    "tabs": ("model:\n\td_model: 8\n", "cannot be read as YAML"),
    "a day that is none": ("training: {seed: 2001-99-99}\n", "cannot be read as YAML"),
    "a list": ("- model\n- data\n", "not sections with keys"),
    "a word": ("model\n", "not sections with keys"),
}


def problems(tree: Tree) -> tuple[str, ...]:
    with pytest.raises(UsageError) as caught:
        build_config(tree)
    return caught.value.problems


def test_later_trees_win_and_leave_their_neighbours() -> None:
    preset = {"model": {"d_model": 512, "num_heads": 8}, "data": {"corpus": "wmt14"}}
    flags = {"data": {"source": "fr"}, "model": {"num_heads": 4}}
    overrides = parse_overrides(["model.num_heads=2", "data.target=en"])
    assert merge(preset, flags, overrides) == {
        "model": {"d_model": 512, "num_heads": 2},
        "data": {"corpus": "wmt14", "source": "fr", "target": "en"},
    }


def test_a_section_fills_an_empty_one() -> None:
    assert merge({"data": None}, {"data": {"source": "fr"}}) == {"data": {"source": "fr"}}


def test_merging_leaves_the_trees_alone() -> None:
    preset: Tree = {"model": {"d_model": 512}}
    merge(preset, {"model": {"d_model": 8}})
    assert preset == {"model": {"d_model": 512}}


def test_an_override_of_null_wins() -> None:
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
def test_an_override_is_read_as_yaml(text: str, value: object) -> None:
    tree = merge({"training": {"max_minutes": 1}}, parse_overrides([text]))
    key = text.partition("=")[0].strip()
    found = flatten(build_config(tree))[key]
    assert found == value
    assert type(found) is type(value)


def test_an_override_may_be_a_list() -> None:
    config = build_config(parse_overrides(["data.corpus=null", "data.train=[my.en, my.de]"]))
    assert config.data.train == ("my.en", "my.de")


def test_an_override_keeps_the_equals_signs_of_its_value() -> None:
    assert parse_overrides(["data.train=[a=b.en, a=b.de]"]) == {
        "data": {"train": ["a=b.en", "a=b.de"]}
    }


def test_the_last_of_two_overrides_wins() -> None:
    overrides = parse_overrides(["model.d_ff=1", "model.d_model=4", "model.d_ff=2"])
    assert overrides == {"model": {"d_ff": 2, "d_model": 4}}


def test_every_malformed_override_gets_a_line() -> None:
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
def test_a_value_that_only_looks_like_a_date_or_a_number_is_the_users_mistake(value: str) -> None:
    with pytest.raises(UsageError, match=r"--set training\.seed="):
        parse_overrides([f"training.seed={value}"])


@pytest.mark.parametrize(("tree", "start"), IMPOSSIBLE.values(), ids=IMPOSSIBLE.keys())
def test_what_cannot_be_is_refused_by_the_keys_name(tree: Tree, start: str) -> None:
    lines = problems(tree)
    assert len(lines) == 1
    assert lines[0].startswith(start)
    assert "; " in lines[0]


@pytest.mark.parametrize("value", ["true", "false"])
def test_only_a_key_that_is_a_switch_takes_true_or_false(value: str) -> None:
    for key, default in flatten(Config()).items():
        if not isinstance(default, bool):
            (line,) = problems(parse_overrides([f"{key}={value}"]))
            assert line.startswith(f"{key}: {value.title()} is ")


@pytest.mark.parametrize(
    "key", ["decoding.beam_size", "decoding.length_penalty", "model.dropout", "training.max_steps"]
)
def test_a_number_is_asked_for_where_a_switch_is_given(key: str) -> None:
    (line,) = problems(parse_overrides([f"{key}=true"]))
    assert line == f"{key}: True is wrong; it should be a number"


@pytest.mark.parametrize("tree", POSSIBLE.values(), ids=POSSIBLE.keys())
def test_what_is_just_possible_is_accepted(tree: Tree) -> None:
    assert isinstance(build_config(tree), Config)


def test_all_problems_come_at_once_each_in_a_line() -> None:
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


def test_problems_between_the_keys_of_one_section_come_at_once_too() -> None:
    lines = problems({"data": {"source": "de", "target": "de", "batch_tokens": 3}})
    assert len(lines) == 2
    assert lines[0].startswith("data: source and target are both 'de'")
    assert lines[1].startswith("data: batch_tokens 3 cannot hold")


@pytest.mark.parametrize(
    ("tree", "hint"),
    [
        ({"model": {"num_head": 8}}, "model.num_head: unknown key; did you mean num_heads? "),
        ({"trainning": {}}, "trainning: unknown key; did you mean training? "),
        ({"data": {"xyz": 1}}, "data.xyz: unknown key; there are corpus, source, target, train"),
    ],
)
def test_an_unknown_key_is_told_the_nearest_right_one(tree: Tree, hint: str) -> None:
    assert problems(tree)[0].startswith(hint)


@pytest.mark.parametrize(
    ("text", "what"), NOT_A_CONFIGURATION.values(), ids=NOT_A_CONFIGURATION.keys()
)
def test_a_file_that_is_no_configuration_is_named(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "my.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=what) as caught:
        read_tree(path)
    assert len(caught.value.problems) == 1
    assert caught.value.problems[0].startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["training: {seed: 3, seed: 4}", "data: {}\ntraining: {}\ndata: {}"]
)
def test_a_key_that_stands_twice_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "f.yaml").write_text(text)
    with pytest.raises(UsageError, match=r"(seed|data) stands there twice .*line [13]"):
        read_tree(tmp_path / "f.yaml")


def test_keys_that_yaml_merges_stand_there_once(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text(
        "a: &a {seed: 3}\nb: {inner: &b {<<: *a, seed: 4}}\nc: {<<: *b, seed: 5}\n"
    )
    tree = read_tree(tmp_path / "f.yaml")
    assert (tree["b"], tree["c"]) == ({"inner": {"seed": 4}}, {"seed": 5})


def test_a_file_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_bytes("data: {source: dé}".encode("latin-1"))
    with pytest.raises(UsageError, match=r"my\.yaml: cannot be read as YAML"):
        read_tree(path)


@pytest.mark.parametrize("name", ["none.yaml", "."])
def test_a_file_that_is_not_there_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="name a YAML file"):
        read_tree(tmp_path / name)


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "model:\n"])
def test_an_empty_file_means_the_defaults(tmp_path: Path, text: str) -> None:
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
def test_a_dumped_configuration_is_read_back_the_same(tmp_path: Path, tree: Tree) -> None:
    config = build_config(tree)
    path = tmp_path / "config.yaml"
    path.write_text(dump_config(config), encoding="utf-8")
    assert build_config(read_tree(path)) == config


def test_differing_keys_are_those_and_no_others() -> None:
    overrides = ["model.d_model=128", "data.max_pairs=7", "training.seed=1"]
    other = build_config(parse_overrides(overrides))
    assert differing_keys(Config(), other) == ["data.max_pairs", "model.d_model"]
    assert differing_keys(other, other) == []


def test_every_preset_builds_under_its_own_name() -> None:
    files = (REPOSITORY / "configs").glob("*.yaml")
    assert preset_names() == sorted(file.stem for file in files)
    for name in preset_names():
        assert isinstance(build_config(read_tree(preset_path(name))), Config)


def test_an_unknown_preset_is_told_the_nearest_and_all() -> None:
    with pytest.raises(UsageError, match=r"--dataset=wmt41: .*did you mean wmt14\? ") as caught:
        preset_path("wmt41")
    assert str(caught.value).endswith(f"there are {', '.join(preset_names())}")


@pytest.mark.parametrize(("name", "values"), [("wmt14", PAPER_BASE), ("wmt14-big", PAPER_BIG)])
def test_the_papers_models_are_the_papers(name: str, values: dict[str, Any]) -> None:
    found = flatten(build_config(read_tree(preset_path(name))))
    assert {key: found[key] for key in values} == values


def test_the_longest_translation_has_room_for_the_least_pieces_and_an_eos() -> None:
    search = {"max_source_length": 20, "max_extra_length": 10}
    assert build_config({"decoding": search}).decoding.longest == 30
    assert build_config({"decoding": {**search, "max_length": 7}}).decoding.longest == 7
    assert build_config({"decoding": {**search, "min_length": 40}}).decoding.longest == 41


def test_layer_norm_has_the_epsilon_of_other_engines() -> None:
    assert Config().model.norm_epsilon == 1e-6


@pytest.mark.parametrize("section", Config.model_fields)
def test_a_configuration_is_frozen(section: str) -> None:
    config = Config()
    keys = getattr(config, section)
    with pytest.raises(ValidationError, match="frozen"):
        setattr(config, section, keys)
    key = next(iter(type(keys).model_fields))
    with pytest.raises(ValidationError, match="frozen"):
        setattr(keys, key, getattr(keys, key))


@pytest.mark.parametrize("section", Config.model_fields)
def test_every_key_says_what_it_means(section: str) -> None:
    fields = type(getattr(Config(), section)).model_fields
    assert [name for name, field in fields.items() if not field.description] == []


def test_the_configuration_needs_no_tensorflow() -> None:
    heavy = ("tensorflow", "keras", "keras_nlp")
    script = f"import sys, tfnmt.config; sys.exit(any(name in sys.modules for name in {heavy}))"
    done = subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, check=False)
    assert done.returncode == 0
