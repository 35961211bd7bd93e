"""The pages of the documentation, and the commands on them."""

import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "export/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]

COMMAND = re.compile(
    r"python -m ((?:tfnmt|benchmarks|tests\.soak|tests\.mutation)\.\w+|app(?:\.\w+)?)([^`\n]*)"
)
BLOCK = re.compile(r"(?:<!-- not run: (.+?) -->\n)?^( *)```sh\n(.*?)^\2```$", re.M | re.S)
"""A fenced block of shell commands, which is indented inside a list."""


class Command(NamedTuple):
    """A command such as `python -m tfnmt.train --dataset=toy`, anywhere on a page."""

    page: str
    module: str
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}: {self.module} {shlex.join(self.arguments)}"


class Block(NamedTuple):
    """A fenced block of shell commands."""

    text: str
    not_run: str  # the reason why no test runs it; empty if one does


def commands(page: Path) -> Iterator[Command]:
    """Yield all commands of a page, in blocks and in text."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    for module, rest in COMMAND.findall(text):
        yield Command(page.name, module, tuple(_arguments(rest)))


def blocks(page: Path) -> list[Block]:
    """Return the shell blocks of a page in order."""
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [Block(textwrap.dedent(text), not_run) for not_run, _, text in found]


def _arguments(text: str) -> Iterator[str]:
    """Yield the arguments up to a pipe or redirection. In a synopsis, N stands for a number."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    for word in lexer:
        if set(word) <= set("|<>;&()"):
            return
        yield re.sub(r"=N$", "=1", word.strip("[]"))
