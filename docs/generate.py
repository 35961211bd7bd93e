"""Write the reference pages from the code, so that nothing is stated twice.

    python -m docs.generate

configuration.md comes from tfnmt/config, commands.md from the flags of the commands, and
web-api.md from the OpenAPI description of the application. A test compares the pages with this.
"""

import argparse
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

from absl import flags
from starlette.testclient import TestClient

import app.settings
import app.suggestions
from app.models.registry import ModelRegistry
from app.server.application import create
from app.server.metrics import Metrics
from app.server.request_guard import RequestGuard
from tfnmt.config import Config

Schema = Mapping[str, Any]

APPLICATION = {"app": app.settings, "app.suggestions": app.suggestions}
"""The commands of the application, and the modules that define their flags."""

FOLDER = Path(__file__).parent / "reference"
NOTE = "<!-- Written by `python -m docs.generate`: do not edit. -->"

CONFIGURATION = """\
A preset (`--dataset=NAME`) or a file (`--config=FILE`) changes these defaults. Without either,
`train` [chooses sizes](../how-to/train.md#let-train-choose-the-sizes) for your own data. Flags
override it, and `--set SECTION.KEY=VALUE` overrides both. Values are YAML. The `config.yaml` of a
run has the resolved configuration."""

COMMANDS = """\
Run each command as `python -m NAME`, or write `tfnmt train` for `python -m tfnmt.train` and
`tfnmt serve` for `python -m app`. `--help` prints the text below. `--noFLAG` turns a boolean flag
off. Put `--` before text that begins with a dash. Exit codes: 0 done, 1 failed, 2 wrong usage, and
128 plus the number of the signal that stopped the command. Output that cannot be written to stdout
is an error. Status lines that cannot be written to stderr are dropped."""

WEB_API = """\
The API of `python -m app`. A running application describes itself at `/docs`, and as OpenAPI at
`/spec`. [Run the web application](../how-to/web-app.md) has examples, limits and errors."""


def pages() -> dict[str, str]:
    """Return the text of each generated page by file name."""
    return {
        "configuration.md": page("Configuration", CONFIGURATION, configuration()),
        "commands.md": page("Commands", COMMANDS, commands()),
        "web-api.md": page("Web API", WEB_API, web_api(openapi())),
    }


def page(title: str, introduction: str, parts: Iterable[str]) -> str:
    """Join the parts of a page."""
    return "\n\n".join([f"# {title}", NOTE, introduction, *parts]) + "\n"


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Format a Markdown table."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '∣') for cell in row)} |" for row in lines)


# --- Configuration --------------------------------------------------------------------------------


def configuration() -> Iterator[str]:
    """Yield a table for each section."""
    for name, field in Config.model_fields.items():
        section = field.annotation
        assert section is not None
        yield f"## {name}"
        yield (section.__doc__ or "").strip()
        schema = section.model_json_schema()
        yield table(
            ("key", "values", "default", "meaning"),
            (
                (f"`{name}.{key}`", values(one), f"`{_yaml(one['default'])}`", one["description"])
                for key, one in schema["properties"].items()
            ),
        )


def _yaml(value: object) -> str:
    """Format a default as in a file."""
    words = {None: "null", True: "true", False: "false"}
    return words[value] if value is None or isinstance(value, bool) else str(value)


def values(schema: Schema) -> str:
    """Describe the values that a schema allows."""
    if "anyOf" in schema:
        return " or ".join(values(one) for one in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "items" in schema:
        return f"list of {values(schema['items'])}"
    kinds = {
        "integer": "integer",
        "number": "number",
        "boolean": "`true`, `false`",
        "string": "string",
        "null": "`null`",
        "object": "object",
    }
    bounds = ", ".join(_bounds(schema))
    return kinds[schema["type"]] + (f" ({bounds})" if bounds else "")


def _bounds(schema: Schema) -> Iterator[str]:
    for key, words in (
        ("minimum", "{} or more"),
        ("exclusiveMinimum", "above {}"),
        ("maximum", "{} or less"),
        ("exclusiveMaximum", "below {}"),
        ("multipleOf", "a multiple of {}"),
        ("minLength", "{} characters or more"),
        ("maxLength", "{} characters or fewer"),
    ):
        if key in schema:
            yield words.format(f"{schema[key]:g}" if schema[key] < 1e6 else f"{schema[key]:.0f}")


# --- Commands -------------------------------------------------------------------------------------


def commands() -> Iterator[str]:
    """Yield usage and flags of each command."""
    for command in find_commands("tfnmt"):
        yield from _command(command.__name__, command.__doc__ or "", absl_flags(command.FLAGS))
    for name, command in APPLICATION.items():
        yield from _command(name, command.USAGE, argparse_flags(command.make_parser()))


def find_commands(package: str) -> list[ModuleType]:
    """Return the modules of a package that define flags."""
    path = import_module(package).__path__
    names = [each.name for each in iter_modules(path) if not each.ispkg]
    modules = [import_module(f"{package}.{name}") for name in names]
    return [module for module in modules if hasattr(module, "FLAGS")]


def _command(name: str, usage: str, rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    yield f"## {name}"
    yield f"```text\n{usage.strip()}\n```"
    yield table(("flag", "meaning"), rows)


def absl_flags(found: flags.FlagValues) -> Iterator[tuple[str, str]]:
    """Yield each flag and its meaning."""
    for name in sorted(found):
        flag = found[name]
        meaning = " ".join((flag.help or "").split())  # absl adds a line to repeatable flags
        choices = getattr(flag.parser, "enum_values", ())
        if choices:  # absl puts the choices in front
            listed = ", ".join(f"`{choice}`" for choice in choices)
            meaning = f"{meaning.partition('>: ')[2]}: {listed}"
        if flag.default not in (None, False, []):
            meaning += f" (default: {_yaml(flag.default)})"
        yield f"`--{name}`" if flag.boolean else f"`--{name}=...`", meaning


def argparse_flags(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """Yield each flag and its meaning."""
    for action in filter(lambda each: each.option_strings, parser._actions):
        shown = "" if action.nargs == 0 else f"={action.metavar or '...'}"
        yield f"`{action.option_strings[-1]}{shown}`", (action.help or "") % vars(action)


# --- The web API ----------------------------------------------------------------------------------


def openapi() -> Schema:
    """Return the OpenAPI description of the application without a model."""
    metrics = Metrics()
    guard = RequestGuard(app.settings.Settings(models=(), backends=()), ModelRegistry([]), metrics)
    spec: Schema = TestClient(create(guard, metrics)).get("/spec").json()
    return spec


def web_api(spec: Schema) -> Iterator[str]:
    """Yield the endpoints, then the schemas of their bodies."""
    for path, methods in spec["paths"].items():
        for method, operation in methods.items():
            yield f"## {method.upper()} {path}"
            yield operation["description"]
            yield table(("", "body"), _operation(operation))
    for name, schema in spec["components"]["schemas"].items():
        if "properties" in schema:
            yield f"## {name}"
            yield schema.get("description", "")
            yield table(("field", "values", "default", "meaning"), _fields(schema))


def _operation(operation: Schema) -> Iterator[tuple[str, str]]:
    """Yield the bodies of the request and of the responses by status."""
    bodies = {"request": operation["requestBody"]} if "requestBody" in operation else {}
    rows: dict[str, list[str]] = {}
    for name, body in (bodies | operation["responses"]).items():
        rows.setdefault(_body(body.get("content", {})), []).append(name)
    return ((", ".join(names), body) for body, names in rows.items())


def _body(contents: Mapping[str, Any]) -> str:
    """Return the media types of a body and its fields."""
    if not contents:
        return "none"
    kinds = ", ".join(f"`{kind.partition(';')[0]}`" for kind in contents)
    content = next(iter(contents.values()))
    return f"{kinds}: {_content(content.get('schema', {}))}"


def _content(schema: Schema) -> str:
    if "properties" in schema:
        return ", ".join(f"`{name}`" for name in schema["properties"])
    return values(schema) if schema.keys() - {"title"} else "anything"


def _fields(schema: Schema) -> Iterator[tuple[str, str, str, str]]:
    required = schema.get("required", ())
    for name, one in schema["properties"].items():
        default = "required" if name in required else f"`{_yaml(one.get('default'))}`"
        yield f"`{name}`", values(one), default, one.get("description", "")


if __name__ == "__main__":
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
