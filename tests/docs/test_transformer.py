"""Tests that the excerpts in docs/concepts/transformer.md are real output of its commands."""

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

PAGE = ROOT / "docs" / "concepts" / "transformer.md"
COMMAND = ".venv/bin/python -m tfnmt.trace "
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)

Line = tuple[tuple[str, ...], tuple[float, ...]]
"""Words and numbers of a line."""


class Excerpt(NamedTuple):
    """A command, and some lines of its output."""

    arguments: str
    lines: list[str]


def read_excerpts() -> list[Excerpt]:
    excerpts = []
    for language, block in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        assert language in ("", "sh")
        if language:
            continue
        command, *lines = block.splitlines()
        assert command.startswith(COMMAND), command
        excerpts.append(Excerpt(command.removeprefix(COMMAND), [line for line in lines if line]))
    return excerpts


def parse(line: str) -> Line:
    words = re.split(r"[\s,;:()]+", line)
    numbers = [word for word in words if re.fullmatch(r"[-+]?\d+(\.\d+)?", word)]
    return tuple(word for word in words if word not in numbers), tuple(map(float, numbers))


@pytest.fixture(scope="module")
def output_lines(call: Callable[..., None]) -> Callable[[str], list[str]]:
    """Return a function that runs a command and returns its output. It runs each command once."""

    @cache
    def run(arguments: str) -> list[str]:
        with redirect_stdout(io.StringIO()) as output:
            call(trace, *shlex.split(arguments))
        return output.getvalue().splitlines()

    return run


def test_every_question_has_a_trace_or_an_image() -> None:
    _, *answers = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.M)
    assert answers
    for answer in answers:
        assert COMMAND in answer or "](../images/" in answer, answer.splitlines()[0]


EXCERPTS = [
    pytest.param(
        excerpt,
        marks=pytest.mark.slow if "--trained" in excerpt.arguments else (),
        id=f"{number}: {excerpt.lines[0].strip()[:40]}",
    )
    for number, excerpt in enumerate(read_excerpts())
]


@pytest.mark.parametrize("excerpt", EXCERPTS)
def test_excerpt_matches_the_output_of_its_command(
    excerpt: Excerpt, output_lines: Callable[[str], list[str]]
) -> None:
    """Numbers may differ by a tenth or 0.01, because training is not identical on all machines."""
    lines = iter([parse(line) for line in output_lines(excerpt.arguments)])
    for line in excerpt.lines:
        words, numbers = parse(line)
        close = pytest.approx(numbers, rel=0.1, abs=0.01)
        # Search only after the previous match, so that the order counts.
        assert any(
            output_words == words
            and len(output_numbers) == len(numbers)
            and output_numbers == close
            for output_words, output_numbers in lines
        ), line
