"""The excerpts on the page of questions are what its commands print."""

import io
import re
import shlex
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import cache
from typing import NamedTuple

import pytest

from tests.docs.pages import ROOT
from tfnmt import trace

PAGE = ROOT / "docs" / "questions.md"
COMMAND = ".venv/bin/python -m tfnmt.trace "
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)

Line = tuple[tuple[str, ...], tuple[float, ...]]
"""The words of a line, and its numbers."""


class Excerpt(NamedTuple):
    """A command, and some of the lines that it prints."""

    arguments: str
    lines: list[str]


def excerpts() -> list[Excerpt]:
    found = []
    for language, block in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        assert language in ("", "sh")
        if language:
            continue
        command, *lines = block.splitlines()
        assert command.startswith(COMMAND), command
        found.append(Excerpt(command.removeprefix(COMMAND), [line for line in lines if line]))
    return found


def parse(line: str) -> Line:
    words = re.split(r"[\s,;:()]+", line)
    numbers = [word for word in words if re.fullmatch(r"[-+]?\d+(\.\d+)?", word)]
    return tuple(word for word in words if word not in numbers), tuple(map(float, numbers))


@pytest.fixture(scope="module")
def printed(call: Callable[..., None]) -> Callable[[str], list[str]]:
    """What a command prints: each is run once."""

    @cache
    def run(arguments: str) -> list[str]:
        with redirect_stdout(io.StringIO()) as output:
            call(trace, *shlex.split(arguments))
        return output.getvalue().splitlines()

    return run


def test_every_question_has_its_trace_or_its_picture() -> None:
    _, *answers = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.M)
    assert answers
    for answer in answers:
        assert COMMAND in answer or "](images/" in answer, answer.splitlines()[0]


@pytest.mark.parametrize(
    "excerpt",
    [
        pytest.param(each, marks=pytest.mark.slow if "--trained" in each.arguments else (),
                     id=f"{number}: {each.lines[0].strip()[:40]}")
        for number, each in enumerate(excerpts())
    ],
)  # fmt: skip
def test_an_excerpt_is_what_its_command_prints(
    excerpt: Excerpt, printed: Callable[[str], list[str]]
) -> None:
    """To a tenth, or the second digit: training ends a little elsewhere on another machine."""
    lines = iter([parse(line) for line in printed(excerpt.arguments)])
    for line in excerpt.lines:
        words, numbers = parse(line)
        close = pytest.approx(numbers, rel=0.1, abs=0.01)
        # From behind the line that was found last.
        assert any(
            kinds == words and len(others) == len(numbers) and others == close
            for kinds, others in lines
        ), line
