"""Configurations and TF_CONFIG of any shape are refused in one line per problem, or valid."""

import contextlib
import json
import os
from pathlib import Path
from typing import Any
from unittest.mock import patch

import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from tfnmt.config import (
    Config,
    build_config,
    dump_config,
    flatten,
    merge,
    parse_overrides,
    read_tree,
)
from tfnmt.errors import UsageError
from tfnmt.runtime.cluster import is_chief, is_distributed

KEYS = sorted({part for key in flatten(Config()) for part in key.split(".")})

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.dates()
    | st.binary(max_size=4)
    | st.sampled_from(["auto", "all", "none", "1e3", "9" * 30, ".inf", "en", "toy"]),
    lambda values: (
        st.lists(values, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS) | st.integers() | st.none(), values, max_size=3)
    ),
    max_leaves=8,
)

KEYED = st.sampled_from(sorted(flatten(Config())))
"""A key of the configuration, as `section.key`."""


def read(path: Path, text: str) -> None:
    """Read a configuration file as the commands do. If it is valid, it survives being written."""
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    try:
        config = build_config(merge(read_tree(path), {"data": {"source": "fr"}}))
    except UsageError:
        return
    path.write_text(dump_config(config), encoding="utf-8")
    assert build_config(read_tree(path)) == config


@given(KEYED, VALUES)
def test_value_of_any_type_is_valid_or_a_usage_error(tmp_path: Path, key: str, value: Any) -> None:
    section, name = key.split(".")
    read(tmp_path / "config.yaml", yaml.safe_dump({section: {name: value}}))


@given(VALUES)
def test_tree_of_any_shape_is_valid_or_a_usage_error(tmp_path: Path, tree: Any) -> None:
    read(tmp_path / "config.yaml", yaml.safe_dump(tree))


@given(
    st.text(max_size=60)
    | st.lists(
        st.sampled_from(
            [*"[]{}:,-?&*!|>'\"%@`# \n\t", "a", "data", "!!int", "!!bool", "!!timestamp", "<<", "~"]
        ),
        max_size=24,
    ).map("".join)
)
@example("!!timestamp x")
@example("!!int ''")
@example("data: &a {x: *a}")
@example("data: [1]")
@example("? []\n: 1")
def test_text_of_any_kind_is_valid_or_a_usage_error(tmp_path: Path, text: str) -> None:
    read(tmp_path / "config.yaml", text)


@given(KEYED, st.text(max_size=20))
@example("data.source", "!!timestamp x")
def test_override_of_any_text_is_valid_or_a_usage_error(key: str, text: str) -> None:
    with contextlib.suppress(UsageError):
        build_config(parse_overrides([f"{key}={text}"]))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda values: (
        st.lists(values, max_size=3)
        | st.dictionaries(
            st.sampled_from(["cluster", "task", "type", "index", "worker", "chief"]),
            values,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON.map(json.dumps) | st.text(st.characters(exclude_characters="\0"), max_size=20))
@example('{"cluster": {"worker": ["a", "b"]}}')
@example("[" * 5000)
def test_tf_config_of_any_shape_is_valid_or_a_usage_error(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    with patch.dict(os.environ, TF_CONFIG=text), contextlib.suppress(UsageError):
        is_distributed()
        is_chief()


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6))
@example("two")
@example("²")
@example("")
def test_number_of_slurm_tasks_of_any_text_is_valid_or_a_usage_error(text: str) -> None:
    variables = {"SLURM_STEP_NUM_TASKS": text, "SLURM_PROCID": text}
    with patch.dict(os.environ, variables), contextlib.suppress(UsageError):
        is_distributed()
        is_chief()
