import subprocess
import sys
from pathlib import Path

import pytest

import tfnmt
from tfnmt.config import (
    Config,
    Tree,
    build_config,
    differing_keys,
    dump_config,
    flatten,
    parse_overrides,
    read_tree,
)
from tfnmt.errors import UsageError

REPOSITORY = Path(tfnmt.__file__).resolve().parent.parent

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
    "direction with one language": (
        {"data": {"directions": ["en"]}},
        "data.directions: 'en' is invalid; it must be two languages, like en-de",
    ),
    "direction to its own language": (
        {"data": {"directions": ["en-de", "de-de"]}},
        "data: directions: de-de has a single language; ",
    ),
    "repeated direction": (
        {"data": {"directions": ["en-de", "de-en", "en-de"]}},
        "data: directions: en-de is repeated; ",
    ),
    "other source than the first direction": (
        {"data": {"source": "fr", "directions": ["en-de", "de-en"]}},
        "data: source and target are fr and de, but directions begins with en-de; ",
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


def problems(tree: Tree) -> tuple[str, ...]:
    with pytest.raises(UsageError) as caught:
        build_config(tree)
    return caught.value.problems


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
            "data.xyz: unknown key; choose one of corpus, source, target, directions",
        ),
    ],
)
def test_unknown_key_suggests_a_known_key(tree: Tree, hint: str) -> None:
    assert problems(tree)[0].startswith(hint)


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


def test_configuration_does_not_import_tensorflow() -> None:
    heavy = ("tensorflow", "keras", "keras_nlp")
    script = f"import sys, tfnmt.config; sys.exit(any(name in sys.modules for name in {heavy}))"
    done = subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, check=False)
    assert done.returncode == 0


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
