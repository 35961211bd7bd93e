from pathlib import Path
from typing import Any

import pytest

import tfnmt
from tfnmt.config import (
    Config,
    Tree,
    build_config,
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


INVALID_FILES = {
    "not YAML": ("model: [1, 2", "invalid YAML"),
    "tabs": ("model:\n\td_model: 8\n", "invalid YAML"),
    "invalid date": ("training: {seed: 2001-99-99}\n", "invalid YAML"),
    "list": ("- model\n- data\n", "sections with keys"),
    "word": ("model\n", "sections with keys"),
}


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


def test_no_is_a_language_and_on_is_a_name(tmp_path: Path) -> None:
    """YAML 1.1 reads both as booleans."""
    path = tmp_path / "my.yaml"
    path.write_text("data: {target: no}\nmodel: {norm_first: True}\non: {a: off}\n")
    assert read_tree(path) == {
        "data": {"target": "no"},
        "model": {"norm_first": True},
        "on": {"a": "off"},
    }


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
        ("data.source=no", "no"),
        ("model.norm_first=no", False),
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


@pytest.mark.parametrize(
    "value",
    ["!!python/object/apply:os.mkdir [{0}]", "!!python/name:os.system ''", "!!python/module:os ''"],
)
def test_code_in_a_file_or_override_does_not_run(tmp_path: Path, value: str) -> None:
    made, path = tmp_path / "made", tmp_path / "my.yaml"
    path.write_text(f"training:\n  seed: {value.format(made)}\n")
    with pytest.raises(UsageError, match="could not determine a constructor"):
        read_tree(path)
    with pytest.raises(UsageError, match=r"training\.seed"):
        parse_overrides([f"training.seed={value.format(made)}"])
    assert not made.exists()


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
