"""The generated reference matches the code."""

import argparse
import re
from pathlib import Path

import pytest

from docs.generate import FOLDER, argparse_flags, pages, values
from tfnmt.config import Config, build_config, flatten, parse_overrides

PAGES = pages()


@pytest.mark.parametrize("name", PAGES)
def test_generated_page_is_current(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == PAGES[name], "run python -m docs.generate"


def test_all_keys_and_defaults_are_listed() -> None:
    rows = re.findall(r"^\| `(\w+\.\w+)` \|[^|]*\| `(.*?)` \|", PAGES["configuration.md"], re.M)
    assert [key for key, _ in rows] == list(flatten(Config()))
    listed = parse_overrides(f"{key}={default}" for key, default in rows)
    assert build_config(listed) == Config()


def test_all_commands_are_listed() -> None:
    package = Path(__file__).parents[2] / "tfnmt"
    names = [path.stem for path in package.glob("*.py") if "\nFLAGS = " in path.read_text()]
    assert len(names) >= 7
    for name in names:
        assert f"\n## tfnmt.{name}\n" in PAGES["commands.md"]


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "integer", "minimum": 1}, "integer (1 or more)"),
        ({"type": "number", "minimum": 0, "exclusiveMaximum": 1}, "number (0 or more, below 1)"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string or `null`"),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, "list of `a`, `b`"),
        ({"$ref": "#/components/schemas/Token"}, "[Token](#token)"),
    ],
)
def test_schema_is_described(schema: dict[str, object], words: str) -> None:
    assert values(schema) == words


def test_argparse_flag_has_its_default() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--port", type=int, default=80, metavar="N", help="(default: %(default)s)")
    assert list(argparse_flags(parser)) == [("`--port=N`", "(default: 80)")]
