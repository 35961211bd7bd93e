"""Formats of custom parallel text: aligned files, TSV, CSV, JSON lines and TMX.

defusedxml is imported only to read TMX, because translating does not need it.
"""

import csv
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from xml.etree.ElementTree import Element, ParseError
from xml.parsers.expat import ErrorString

from tfnmt.data.corpora.languages import ROLES, is_header, matches, subtags
from tfnmt.data.corpora.text_files import Pair, open_bytes, read_lines, read_pairs
from tfnmt.errors import UserError

SHOWN = 10
"""Languages or keys in a message."""

MAX_CELL = 2**24
"""Characters in a CSV cell. A longer cell has a quote that was never closed."""

CODE_TAGS = {"bpt", "ept", "ph", "it", "ut", "sub"}
"""TMX tags whose text is markup of the translated document and not part of the sentence."""

BREAK_TYPES = {"lb", "pb", "cb"}
"""TMX types of a tag that breaks the line, page or column."""

BREAK_CODE = re.compile(r"<(?:\w+:)?(?:br|line-break)\b|^\s*(?:\\n|\\line|\n)\s*$")
"""Code of a line break in a TMX tag: of HTML and XML formats, of strings and of RTF."""

SURROGATES = re.compile("[\ud800-\udfff]")

XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"


class Text(Protocol):
    """Parallel text in one direction."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """Return the files that contain the text."""

    def pairs(self, errors: str = "strict") -> Iterator[Pair]:
        """Yield the (source, target) sentences in order. A missing side is empty.

        Args:
            errors: The treatment of bytes that are not UTF-8, as in `open`.
        """


@dataclass(frozen=True)
class Aligned:
    """Two files. Line N of one translates line N of the other."""

    source: Path
    target: Path
    languages: tuple[str, str]

    @property
    def paths(self) -> tuple[Path, ...]:
        """Return the source file and the target file."""
        return (self.source, self.target)

    def pairs(self, errors: str = "strict") -> Iterator[Pair]:
        """Yield the (source, target) sentences in order. Raise a UserError for a header."""
        for number, pair in enumerate(read_pairs(self.source, self.target, errors)):
            if number == 0 and is_header(pair, *self.languages):
                raise UserError(
                    f"{self.source}:1: a header ({pair[0]}), as in {self.target} ({pair[1]}); "
                    "remove line 1 of both files"
                )
            yield pair


@dataclass(frozen=True)
class _OneFile(ABC):
    """A file that contains both sides. `source` and `target` are languages."""

    path: Path
    source: str
    target: str

    @property
    def paths(self) -> tuple[Path, ...]:
        """Return the file."""
        return (self.path,)

    def pairs(self, errors: str = "strict") -> Iterator[Pair]:
        """Yield the (source, target) sentences in order. Raise a UserError if a side has none."""
        missing = [self.source, self.target]
        for pair in self._pairs(errors):
            if missing:
                found = [side for side, text in zip(self.languages, pair, strict=True) if text]
                missing = [side for side in missing if side not in found]
            yield pair
        if missing:
            others = ", ".join(sorted(self._other_names())[:SHOWN])
            raise UserError(
                f"{self.path}: contains no {' or '.join(missing)} text"
                f"{f' (it has {others})' if others else ''}; check the file and the two languages"
            )

    @property
    def languages(self) -> tuple[str, str]:
        """Return source and target."""
        return self.source, self.target

    @abstractmethod
    def _pairs(self, errors: str) -> Iterator[Pair]:
        """Yield the (source, target) sentences in order."""

    def _other_names(self) -> Collection[str]:
        """Return the languages or keys in the file that are not used."""
        return ()


@dataclass(frozen=True)
class TSV(_OneFile):
    """Tab-separated cells without quoting: source and target, or the columns of a header."""

    def _pairs(self, errors: str) -> Iterator[Pair]:
        columns = (0, 1)
        widest = 0
        for number, line in enumerate(read_lines(self.path, errors)):
            row = line.split("\t")
            widest = max(widest, len(row))
            if number == 0:
                header = _columns(row, self)
                if header is not None:
                    columns = header
                    continue
                if is_header(row, *self.languages):
                    raise UserError(
                        f"{self.path}:1: a header ({', '.join(row)}); name the columns "
                        f"{self.source} and {self.target}, or remove this line"
                    )
            yield _cell(row, columns[0]), _cell(row, columns[1])
        if widest == 1:
            raise UserError(
                f"{self.path}: contains no tab; write {self.source} TAB {self.target} on each line"
            )


@dataclass(frozen=True)
class CSV(_OneFile):
    """Comma-separated cells with optional quotes, below a header."""

    def _pairs(self, errors: str) -> Iterator[Pair]:
        # The limit is global for the process, so it is only raised.
        csv.field_size_limit(max(MAX_CELL, csv.field_size_limit()))
        # Without strict, an unclosed quote silently swallows the rest of the file.
        rows = csv.reader((f"{line}\n" for line in read_lines(self.path, errors)), strict=True)
        start = 1
        try:
            header = next(rows, [])
            columns = _columns(header, self)
            if columns is None:
                raise UserError(
                    f"{self.path}:1: the columns are {', '.join(header) or 'none'}; write a header "
                    f"row with {self.source},{self.target} or source,target"
                )
            start = rows.line_num + 1
            for row in rows:
                if any(row[len(header) :]):
                    raise csv.Error(f"{len(row)} cells below {len(header)} columns")
                if row:
                    yield _single_line(_cell(row, columns[0])), _single_line(_cell(row, columns[1]))
                start = rows.line_num + 1
        except csv.Error as error:
            raise UserError(
                f"{self.path}:{start}: not a CSV row ({error}); quote cells that contain quotes, "
                "commas or line breaks, and double the quotes inside them"
            ) from error


@dataclass(frozen=True)
class JSONLines(_OneFile):
    """One JSON object per line, with the languages or `source` and `target` as keys."""

    def _pairs(self, errors: str) -> Iterator[Pair]:
        for place, record in self._records(errors):
            # Both sides together: next to languages, "source" often names where the text is from.
            keys = ROLES if record.keys().isdisjoint(self.languages) else self.languages
            yield _string(record, keys[0], place, errors), _string(record, keys[1], place, errors)

    def _records(self, errors: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the objects that contain the sentences, each with its place."""
        decode = json.JSONDecoder(object_pairs_hook=self._object).decode
        for number, line in enumerate(read_lines(self.path, errors), start=1):
            if not line.strip():
                continue
            place = f"{self.path}:{number}"
            try:
                record = decode(line)
            except KeyError as error:
                raise UserError(f"{place}: two keys {error}; remove or rename one") from error
            except (ValueError, RecursionError):
                record = None
            if not isinstance(record, dict):
                raise UserError(
                    f"{place}: not a JSON object; write one on each line, "
                    f'for example {{"{self.source}": "...", "{self.target}": "..."}}'
                )
            inner = record.get("translation")  # the key of Hugging Face data sets
            yield place, inner if isinstance(inner, dict) else record

    def _object(self, items: list[tuple[str, Any]]) -> dict[str, Any]:
        """Return a JSON object. Raise a KeyError if it has two values for a sentence."""
        record = dict(items)
        if len(record) != len(items):
            keys = [key for key, _ in items]
            for key in (*self.languages, *ROLES, "translation"):
                if keys.count(key) > 1:
                    raise KeyError(key)
        return record

    def _other_names(self) -> Collection[str]:
        used = (*self.languages, *ROLES)
        return {key for _, record in self._records("replace") for key in record if key not in used}


@dataclass(frozen=True)
class TMX(_OneFile):
    """Translation Memory eXchange: XML with any number of languages per unit."""

    def _pairs(self, errors: str) -> Iterator[Pair]:
        del errors  # expat reads the encoding from the file and rejects other bytes
        for unit in self._units():
            source = _variant(unit, self.source, self.target)
            target = _variant(unit, self.target, self.source)
            if source is not None or target is not None:
                yield _sentence(source), _sentence(target)

    def _other_names(self) -> Collection[str]:
        found = {_language(variant) for unit in self._units() for variant in _variants(unit)}
        return {
            language
            for language in found
            if language
            and not matches(language, self.source, self.target)
            and not matches(language, self.target, self.source)
        }

    def _units(self) -> Iterator[Element]:
        """Yield the translation units and free each after use."""
        from defusedxml import DefusedXmlException
        from defusedxml.ElementTree import iterparse

        try:
            with open_bytes(self.path) as file:
                body: Element | None = None
                for event, element in iterparse(file, events=("start", "end")):
                    if event == "start" and _tag(element) == "body":
                        body = element
                    elif event == "end" and _tag(element) == "tu":
                        yield element
                        if body is not None:
                            body.clear()
        except ParseError as error:
            raise UserError(
                f"{self.path}:{error.position[0]}: malformed XML ({ErrorString(error.code)}); "
                "export the TMX again, or fix this line"
            ) from error
        except DefusedXmlException as error:
            raise UserError(
                f"{self.path}: declares entities, which tfnmt does not expand; remove the DOCTYPE"
            ) from error
        except (LookupError, ValueError) as error:
            raise UserError(
                f"{self.path}: unsupported encoding ({error}); convert the file to UTF-8"
            ) from error


Format = Callable[[Path, str, str], Text]
"""Opens a file that contains both sides: path, source, target."""

FORMATS: dict[str, Format] = {
    ".tsv": TSV,
    ".csv": CSV,
    ".jsonl": JSONLines,
    ".ndjson": JSONLines,
    ".tmx": TMX,
}
"""The formats with both sides in one file, by suffix. A .gz may follow."""


def _columns(header: Sequence[str], text: _OneFile) -> tuple[int, int] | None:
    """Return the columns of source and target if the first row names them."""
    names = [cell.strip().lower() for cell in header]
    for first, second in ((text.source.lower(), text.target.lower()), ROLES):
        if first in names and second in names:
            for name in (first, second):
                if names.count(name) > 1:
                    raise UserError(f"{text.path}:1: two columns are {name}; rename one of them")
            return names.index(first), names.index(second)
    return None


def _cell(row: Sequence[str], column: int) -> str:
    return row[column] if column < len(row) else ""


def _single_line(text: str) -> str:
    """Replace line breaks with spaces: everywhere in tfnmt a sentence is one line."""
    return text.replace("\r\n", " ").replace("\n", " ").replace("\r", " ")


def _string(record: dict[str, Any], key: str, place: str, errors: str) -> str:
    """Return one side of a JSON object, empty if it is missing."""
    text = record.get(key)
    if text is None:
        return ""
    if not isinstance(text, str):
        raise UserError(f'{place}: "{key}" is not a string; write a string')
    # An unpaired surrogate is valid JSON, but it cannot be encoded in UTF-8.
    if errors == "strict" and SURROGATES.search(text):
        raise UserError(f'{place}: "{key}" contains an unpaired surrogate; fix the text')
    return _single_line(text)


def _tag(element: Element) -> str:
    """Return the name of an element without its namespace."""
    return element.tag.rpartition("}")[2]


def _variant(unit: Element, language: str, other: str) -> Element | None:
    """Return the variant of a unit in a language: an exact match, or the first similar one."""
    near = None
    for variant in _variants(unit):
        has = _language(variant)
        if subtags(has) == subtags(language):
            return variant
        if near is None and matches(has, language, other):
            near = variant
    return near


def _variants(unit: Element) -> list[Element]:
    return [child for child in unit if _tag(child) == "tuv"]


def _language(variant: Element) -> str:
    return variant.get(XML_LANG, "") or variant.get("lang", "")


def _sentence(variant: Element | None) -> str:
    """Return the text of a variant on one line."""
    segments = [] if variant is None else [child for child in variant if _tag(child) == "seg"]
    text = _plain_text(segments[0]).replace("\r", "\n") if segments else ""
    if "\n" not in text:
        return text
    # White space around a line break of the XML is indentation. This includes only XML's own white
    # space, which excludes the no-break space.
    lines = (line.strip(" \t") for line in text.split("\n"))
    return " ".join(line for line in lines if line)


def _plain_text(segment: Element) -> str:
    """Return the text of a segment. Code in its inline tags is omitted, except for line breaks."""
    parts = []
    # Not recursive, because elements may be nested more deeply than functions.
    rest: list[str | Element] = [segment]
    while rest:
        item = rest.pop()
        if isinstance(item, str):
            parts.append(item)
        elif _tag(item) in CODE_TAGS:
            parts.append("\n" if _is_break(item) else "")
        else:
            parts.append(item.text or "")
            for child in reversed(item):
                rest += [child.tail or "", child]
    return "".join(parts)


def _is_break(code: Element) -> bool:
    """Return whether an inline tag stands for a line break."""
    return code.get("type") in BREAK_TYPES or bool(BREAK_CODE.search("".join(code.itertext())))
