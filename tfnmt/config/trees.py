"""A configuration before it is checked: presets, files and overrides, and merging them."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from tfnmt.errors import UsageError, did_you_mean

Tree = dict[str, Any]
"""A configuration before it is checked: nested dictionaries."""


def preset_path(name: str) -> Path:
    """Return the file of a preset.

    Raises:
        UsageError: There is no preset with this name.
    """
    path = _presets_folder() / f"{name}.yaml"
    if not path.is_file():
        names = preset_names()
        raise UsageError(
            f"--dataset={name}: unknown preset; {did_you_mean(name, names)}"
            f"choose one of {', '.join(names)}"
        )
    return path


def preset_names() -> list[str]:
    """Return the names of all presets."""
    return sorted(path.stem for path in _presets_folder().glob("*.yaml"))


def _presets_folder() -> Path:
    """Return the folder of the presets: inside an installed package, or next to it in a clone."""
    package = Path(__file__).resolve().parents[1]
    return next(
        (folder for folder in (package / "configs", package.parent / "configs") if folder.is_dir()),
        package / "configs",
    )


MAX_CHARACTERS = 1_000_000
"""Maximum length of a configuration file, because a device such as /dev/zero never ends."""


BOOLEAN = "tag:yaml.org,2002:bool"


class _Loader(yaml.SafeLoader):
    """A YAML loader that rejects duplicate keys. PyYAML would silently use the last one.

    Only true and false are booleans, as in YAML 1.2. In YAML 1.1, `target: no` is false.
    """

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and (key.tag, key.value) in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"duplicate key {key.value}", problem_mark=key.start_mark
                )
            seen.add((key.tag, str(key.value)))
        return node


_Loader.yaml_implicit_resolvers = {
    first: [resolver for resolver in resolvers if resolver[0] != BOOLEAN]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(BOOLEAN, re.compile("^(true|True|TRUE|false|False|FALSE)$"), "tTfF")


def read_tree(path: Path) -> Tree:
    """Read a YAML file.

    Raises:
        UsageError: The file cannot be read, or does not contain sections.
    """
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MAX_CHARACTERS + 1)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; choose a YAML file") from error
    except ValueError as error:
        raise UsageError(f"{path}: not UTF-8; choose a YAML file") from error
    if len(text) > MAX_CHARACTERS:
        raise UsageError(f"{path}: too long for a configuration; choose a YAML file")
    try:
        tree = yaml.load(text, _Loader)
    except Exception as error:  # PyYAML raises many types, even RecursionError
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UsageError(f"{path}: invalid YAML: {reason}; fix the file") from error
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise UsageError(
            f"{path}: does not contain sections with keys; see configs/toy.yaml for an example"
        )
    # Here, because merging would replace such a section without an error.
    wrong = [name for name, keys in tree.items() if not isinstance(keys, dict | None)]
    if wrong:
        raise UsageError(*(f"{path}: {name}: has no keys; write them below it" for name in wrong))
    return tree


def parse_overrides(assignments: Iterable[str], place: str = "--set") -> Tree:
    """Parse overrides, whose values are YAML.

    Args:
        assignments: Overrides of the form SECTION.KEY=VALUE.
        place: The flag or key that they come from, for messages.

    Example:
        `["model.d_model=128"]` gives `{"model": {"d_model": 128}}`.

    Raises:
        UsageError: Overrides are malformed; one problem each.
    """
    tree: Tree = {}
    problems = []
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        section, dot, name = key.strip().partition(".")
        if not (equals and dot and section and name):
            problems.append(
                f"{place} {assignment}: not of the form SECTION.KEY=VALUE; try model.d_model=128"
            )
            continue
        try:
            value = yaml.load(text, _Loader)
        except Exception:  # PyYAML raises many types
            problems.append(f"{place} {assignment}: the value is not valid YAML; quote it")
            continue
        tree.setdefault(section, {})[name] = value
    if problems:
        raise UsageError(*problems)
    return tree


def merge(*trees: Mapping[str, Any]) -> Tree:
    """Merge nested dictionaries. Values of later ones replace those of earlier ones."""
    merged: Tree = {}
    for tree in trees:
        for key, value in tree.items():
            old = merged.get(key)
            both = isinstance(old, Mapping) and isinstance(value, Mapping)
            merged[key] = merge(old, value) if both else value  # type: ignore[arg-type]
    return merged
