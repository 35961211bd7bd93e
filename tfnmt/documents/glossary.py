"""A glossary: terms of the source language and their required translations."""

import re
from collections.abc import Mapping
from itertools import islice
from typing import NamedTuple

from tfnmt.documents.alignment import find_words
from tfnmt.documents.sentences import Span
from tfnmt.errors import UserError

MAX_TERMS = 10_000
MAX_TERM = 200
"""Maximum characters of a term."""

SHOWN_PROBLEMS = 5


class Match(NamedTuple):
    """A term in a sentence."""

    span: Span
    term: str
    translation: str


class Glossary:
    """Terms and their translations.

    A term in lower case matches any case; other terms match exactly. Longer terms win.
    """

    def __init__(self, terms: Mapping[str, str]) -> None:
        texts = (*terms, *terms.values())
        self.words = frozenset(word.of(text).lower() for text in texts for word in find_words(text))
        """The words of all terms and translations, in lower case."""
        self._by_first_word: dict[str, dict[int, dict[str, str]]] = {}
        """For each first word, the terms of each length, longest first. Terms with the same first
        word are not compared one by one."""
        for term in sorted(terms, key=len, reverse=True):
            lengths = self._by_first_word.setdefault(_first_word(term), {})
            lengths.setdefault(len(term), {})[term] = terms[term]

    def find(self, text: str) -> list[Match]:
        """Return the terms in a text, in order and without overlaps."""
        found: list[Match] = []
        for word in find_words(text):
            if found and word.start < found[-1].span.end:
                continue
            for length, terms in self._by_first_word.get(word.of(text).lower(), {}).items():
                span = Span(word.start, word.start + length)
                term = span.of(text)
                translation = terms.get(term) or terms.get(term.lower())
                if translation and not text[span.end : span.end + 1].isalnum():
                    found.append(Match(span, term, translation))
                    break
        return found


def _first_word(term: str) -> str:
    words = find_words(term)
    return words[0].of(term).lower() if words else ""


def parse_glossary(content: bytes, name: str = "glossary") -> Glossary:
    """Parse lines of SOURCE TERM, tab, TARGET TERM.

    Args:
        content: The file. Blank lines and lines that begin with # are skipped.
        name: The file's name in messages.

    Raises:
        UserError: The text is not UTF-8, a line is invalid, or a term has two translations.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{name}: not UTF-8; save it as UTF-8") from error
    terms: dict[str, str] = {}
    problems: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        if problem := _add(terms, [field.strip() for field in line.split("\t")]):
            problems.append(f"{name}: line {number}: {problem}")
    if len(terms) > MAX_TERMS:
        problems.append(f"{name}: {len(terms)} terms; the limit is {MAX_TERMS}")
    if problems:
        raise UserError(*islice(problems, SHOWN_PROBLEMS))
    return Glossary(terms)


def _add(terms: dict[str, str], row: list[str]) -> str | None:
    """Add a row to the terms, or return the problem."""
    if len(row) != 2 or not all(row):
        return "not two terms; write SOURCE TERM, a tab, TARGET TERM"
    source, target = row
    if max(len(source), len(target)) > MAX_TERM:
        return f"a term is longer than {MAX_TERM} characters; shorten it"
    if terms.setdefault(source, target) != target:
        return f"{source}: has the translations {terms[source]} and {target}; remove one"
    return None


def contains_words(text: str, words: str) -> bool:
    """Return whether a text contains some words as a whole, in any case."""
    return re.search(rf"(?<!\w){re.escape(words)}(?!\w)", text, re.IGNORECASE) is not None
