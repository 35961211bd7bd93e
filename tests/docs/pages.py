"""The pages that people read, and the commands on them."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "export" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

COMMAND = re.compile(r"python -m (tfnmt\.\w+|app|benchmarks\.\w+)([^`\n]*)")
BLOCK = re.compile(r"(?:<!-- not run: (.+?) -->\n)?^```sh\n(.*?)^```$", re.M | re.S)


class Command(NamedTuple):
    """A call of a module, `python -m tfnmt.train --dataset=toy` say, anywhere on a page."""

    page: str
    module: str
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}: {self.module} {shlex.join(self.arguments)}"


class Block(NamedTuple):
    """A fenced block of commands for the shell."""

    text: str
    not_run: str  # why a test does not run it; empty where it does


def commands(page: Path) -> Iterator[Command]:
    """All commands of a page, in blocks and in running text."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    for module, rest in COMMAND.findall(text):
        yield Command(page.name, module, tuple(_arguments(rest)))


def blocks(page: Path) -> list[Block]:
    """The blocks of a page, in order."""
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [Block(text, not_run) for not_run, text in found]


def _arguments(text: str) -> Iterator[str]:
    """Up to a pipe or the like. `[--flag=N]` of a synopsis is a flag, and N stands for a number."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    for word in lexer:
        if set(word) <= set("|<>;&()"):
            return
        yield re.sub(r"=N$", "=1", word.strip("[]"))
