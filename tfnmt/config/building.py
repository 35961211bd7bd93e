"""Checking a configuration, its errors for people, and the checked configuration as keys."""

import reprlib
import sys
from collections.abc import Mapping
from typing import Any

import yaml
from pydantic import ValidationError

from tfnmt.config.sections import Config
from tfnmt.errors import UsageError, did_you_mean


def build_config(tree: Mapping[str, Any]) -> Config:
    """Check a tree and return its configuration.

    Raises:
        UsageError: The tree is invalid; contains all problems.
    """
    sections = {name: value for name, value in tree.items() if value is not None}
    try:
        return Config.model_validate(sections)
    except ValidationError as error:
        details = (dict(detail) for detail in error.errors())
        raise UsageError(*(line for detail in details for line in _problems(detail))) from error


def dump_config(config: Config) -> str:
    """Return the configuration as YAML, from which `read_tree` and `build_config` restore it."""
    tree = config.model_dump(mode="json")
    if config == config.of_run():
        del tree["diversification"]
    return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)


def flatten(config: Config) -> dict[str, Any]:
    """Return every key with its value, as `{"model.d_model": 256, ...}`."""
    return {
        f"{section}.{key}": value
        for section, keys in config.model_dump(mode="json").items()
        for key, value in keys.items()
    }


END_KEYS = tuple(
    f"training.{key}"
    for key in ("max_steps", "max_epochs", "max_tokens", "max_minutes", "patience")
)
"""Keys that decide only when training ends."""

INTERVAL_KEYS = tuple(
    f"training.{key}"
    for key in ("checkpoint_steps", "validation_steps", "log_steps", "histogram_steps")
)
"""Keys that decide only when a training run saves, validates and logs."""

STEP_KEEPING_KEYS = (*INTERVAL_KEYS, "training.device_tokens", "model.attention")
"""Keys that change neither a step nor the end of a training run."""

CHANGEABLE_KEYS = (*END_KEYS, *STEP_KEEPING_KEYS)
"""Keys that may change when a run is resumed, because its steps stay the same."""


def differing_keys(config: Config, other: Config) -> list[str]:
    """Return the keys whose values differ between two configurations."""
    theirs = flatten(other)
    return [key for key, value in flatten(config).items() if value != theirs[key]]


# --- Errors ---------------------------------------------------------------------------------------

EXPECTED = {
    "boolean": "a number",
    "too_large": f"{sys.maxsize} or less",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "greater_than_equal": "{ge} or greater",
    "greater_than": "greater than {gt}",
    "less_than_equal": "{le} or less",
    "less_than": "less than {lt}",
    "multiple_of": "a multiple of {multiple_of}",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "string_pattern_mismatch": "a letter, then letters, digits or underscores, like en or pt_BR",
    "literal_error": "{expected}",
    "tuple_type": "a list",
    "too_short": "a list of {min_length} or more",
    "model_type": "a section with keys",
}
"""The expected value for each type of error that pydantic reports."""


_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = 200
_REPR.maxlevel = 2
"""Shortens invalid values. A small YAML file can describe a value of gigabytes with aliases."""


def _problems(detail: dict[str, Any]) -> list[str]:
    """Convert an error of pydantic into lines: one, or one per conflict within a section."""
    location = [str(part) for part in detail["loc"]]
    key = ".".join(location[:2])
    kind = detail["type"]
    if kind == "extra_forbidden":
        known = _keys(location[0]) if len(location) > 1 else list(Config.model_fields)
        hint = did_you_mean(location[-1], known)
        return [f"{key}: unknown key; {hint}choose one of {', '.join(known)}"]
    if kind == "value_error":
        return [f"{key}: {line}" for line in str(detail["ctx"]["error"]).splitlines()]
    if key == "data.directions" and kind == "string_pattern_mismatch":
        advice = "it must be two languages, like en-de"
    elif key == "data.batch_tokens":  # pydantic reports one error for each member of the union
        if kind != "literal_error":
            return []
        advice = "it must be 1 or greater, or 'auto'"
    elif kind in EXPECTED:
        advice = "it must be " + EXPECTED[kind].format(**detail.get("ctx", {}))
    else:
        advice = detail["msg"]
    return [f"{key}: {_REPR.repr(detail['input'])} is invalid; {advice}"]


def _keys(section: str) -> list[str]:
    """Return the keys of a section. The annotation of a section is a plain class."""
    annotation = Config.model_fields[section].annotation
    assert annotation is not None
    return list(annotation.model_fields)
