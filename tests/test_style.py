"""Banned words and constructions in code, messages, docs and the web page."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXTS = {".py", ".md", ".ipynb", ".html", ".txt", ".js", ".css", ".sh"}
ENDINGS = TEXTS | {".yaml", ".yml", ".toml", ".config"}
NAMES = {"Makefile", "Dockerfile", "run"}

BANNED = {
    "anew": "again",
    "beside": "alongside, next to",
    r"mend(s|ed|ing)?": "fix",
    r"(is|are|was|were) told": "name the actor: 'train prints one line per problem'",
    "told in a line": "a one-line error",
    "made text": "synthetic parallel data",
    "own text": "custom data",
    "but for": "except",
    "for it has": "because it has",
    r"a training (is|of|that)": "a training run",
    "nothing of ours": "name the thing",
    "as far as there": "up to",
    "near ties apart": "except for near ties",
    "the literature's": "BLEU (lowercased, tokenized)",
    r"\w*look_(back|around|over)\w*": "self-attention, cross-attention",
}
PATTERNS = {re.compile(rf"\b{banned}\b", re.I): advice for banned, advice in BANNED.items()}

RELATIVE = re.compile(
    r'(?:^|[.!?:]\s+|"""|#\s+|//\s+|/\*+\s+|^\s*[-*]\s+|\|\s+|>)((?:Who|What)\b[^.?!|<]*)([.?!|<]|$)',
    re.M,
)
"""A sentence that begins with Who or What, and its end. A question is allowed."""

ALLOWED = {
    # Test data: sentences and words of a language.
    ("tfnmt/data/corpora/toy/lexicon.py", "mend"),
}


def text_files() -> list[Path]:
    """Return the files that people read, as far as git tracks them or would."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        paths = [ROOT / name for name in names.splitlines()]
    except (OSError, subprocess.CalledProcessError):  # a source archive without git
        paths = [path for path in ROOT.rglob("*") if ".venv" not in path.parts]
    return sorted(
        path
        for path in paths
        if path.is_file()
        and (path.suffix in ENDINGS or path.name in NAMES)
        and path != Path(__file__).resolve()
    )


def violations(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield line number, text and advice for each violation."""
    for pattern, advice in PATTERNS.items():
        for match in pattern.finditer(text):
            yield text.count("\n", 0, match.start()) + 1, match[0], advice
    for match in RELATIVE.finditer(text):
        sentence, end = match[1], match[2]
        if end != "?" and not sentence.rstrip().endswith("?"):
            yield text.count("\n", 0, match.start(1)) + 1, sentence[:60], "use a noun, or ask"


@pytest.mark.parametrize(
    "text",
    [
        "the run is begun anew",
        "a file beside it",
        "Mend it.",
        "problems are told at once",
        "all but for the last",
        "a training of 12 epochs",
        "the literature's BLEU",
        "def look_around(x):",
        '"""What a decoder remembers."""',
        "# Who calls this pays.",
        "It ends. What comes later is lost.",
        "## What is exact",
    ],
)
def test_style_check_finds_banned_constructions(text: str) -> None:
    assert list(violations(text))


@pytest.mark.parametrize(
    "text", ["What is a mask?", "We told the user.", "the best side", "She knows what it does."]
)
def test_style_check_accepts_plain_text(text: str) -> None:
    assert not list(violations(text))


def test_no_banned_constructions_in_the_project() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text!r}; use: {advice}"
        for path in text_files()
        for line, text, advice in violations(path.read_text(encoding="utf-8", errors="replace"))
        if (str(path.relative_to(ROOT)), text.lower()) not in ALLOWED
    ]
    assert not found, "\n".join(found[:100])
