"""Formats of custom parallel text: aligned files, TSV, CSV, JSON lines and TMX."""

import csv
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from xml.etree.ElementTree import Element, ParseError
from xml.parsers.expat import ErrorString

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import iterparse

from tfnmt.data.corpora.text_files import (
    Pair,
    decompressed_name,
    open_bytes,
    read_lines,
    read_pairs,
)
from tfnmt.errors import UsageError, UserError

ROLES = ("source", "target")
"""Names of columns and keys that may replace the languages."""

MAX_CELL = 2**24
"""Characters in a CSV cell. A longer cell has a quote that was never closed."""

CODE_TAGS = {"bpt", "ept", "ph", "it", "ut", "sub"}
"""TMX tags whose text is markup of the translated document and not part of the sentence."""

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

    @property
    def paths(self) -> tuple[Path, ...]:
        """Return the source file and the target file."""
        return (self.source, self.target)

    def pairs(self, errors: str = "strict") -> Iterator[Pair]:
        """Yield the (source, target) sentences in order."""
        return read_pairs(self.source, self.target, errors)


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
        """Yield the (source, target) sentences in order. Raise a UserError if there are none."""
        empty = True
        for pair in self._pairs(errors):
            empty = empty and not any(pair)
            yield pair
        if empty:
            raise UserError(
                f"{self.path}: contains no {self.source} or {self.target} text; "
                "check the file and the two languages"
            )

    @abstractmethod
    def _pairs(self, errors: str) -> Iterator[Pair]:
        """Yield the (source, target) sentences in order."""


@dataclass(frozen=True)
class TSV(_OneFile):
    """Tab-separated cells without quoting: source and target, or the columns of a header."""

    def _pairs(self, errors: str) -> Iterator[Pair]:
        columns = (0, 1)
        widest = 0
        for number, line in enumerate(read_lines(self.path, errors)):
            row = line.split("\t")
            widest = max(widest, len(row))
            header = _columns(row, self.source, self.target) if number == 0 else None
            if header is None:
                yield _cell(row, columns[0]), _cell(row, columns[1])
            else:
                columns = header
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
            columns = _columns(header, self.source, self.target)
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
        for number, line in enumerate(read_lines(self.path, errors), start=1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                record = None
            if not isinstance(record, dict):
                raise UserError(
                    f"{self.path}:{number}: not a JSON object; write one on each line, "
                    f'for example {{"{self.source}": "...", "{self.target}": "..."}}'
                )
            inner = record.get("translation")  # the key of Hugging Face data sets
            record = inner if isinstance(inner, dict) else record
            languages = (self.source, self.target)
            # Both sides together: next to languages, "source" often names where the text is from.
            keys = ROLES if record.keys().isdisjoint(languages) else languages
            place = f"{self.path}:{number}"
            yield _string(record, keys[0], place, errors), _string(record, keys[1], place, errors)


@dataclass(frozen=True)
class TMX(_OneFile):
    """Translation Memory eXchange: XML with any number of languages per unit."""

    def _pairs(self, errors: str) -> Iterator[Pair]:
        del errors  # expat reads the encoding from the file and rejects other bytes
        try:
            with open_bytes(self.path) as file:
                for unit in _units(iterparse(file, events=("start", "end"))):
                    source = _variant(unit, self.source, self.target)
                    target = _variant(unit, self.target, self.source)
                    if source is not None or target is not None:
                        yield _sentence(source), _sentence(target)
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


FORMATS: dict[str, Callable[[Path, str, str], Text]] = {
    ".tsv": TSV,
    ".csv": CSV,
    ".jsonl": JSONLines,
    ".ndjson": JSONLines,
    ".tmx": TMX,
}
"""The formats with both sides in one file, by suffix. A .gz may follow."""


def find_texts(names: Sequence[Path], source: str, target: str) -> tuple[Text, ...]:
    """Return the texts in files and folders, in order.

    Args:
        names: Files and folders. Two aligned files follow each other.
        source: The source language.
        target: The target language.

    Raises:
        UsageError: An aligned file has no second file.
        UserError: A folder contains no text.
    """
    texts: list[Text] = []
    rest = iter(names)
    for name in rest:
        if name.is_dir():
            texts += _in_folder(name, source, target)
        elif open_format := _format(name):
            texts.append(open_format(name, source, target))
        else:
            second = next(rest, None)
            if second is None or not _is_line_file(second):
                raise UsageError(
                    f"{name}: the second aligned file is missing; name two aligned files, or a "
                    ".tsv, .csv, .jsonl or .tmx file"
                )
            backwards = (_suffix(name), _suffix(second)) == (f".{target}", f".{source}")
            texts.append(Aligned(second, name) if backwards else Aligned(name, second))
    return tuple(texts)


def languages_of(names: Sequence[Path]) -> tuple[str, str] | None:
    """Return (source, target) from the suffixes of the first two files, if they are aligned."""
    first_two = names[:2]
    languages = [_suffix(name).removeprefix(".") for name in first_two if _is_line_file(name)]
    return (languages[0], languages[1]) if len(languages) == 2 and all(languages) else None


def _suffix(path: Path) -> str:
    return decompressed_name(path).suffix


def _format(path: Path) -> Callable[[Path, str, str], Text] | None:
    return FORMATS.get(_suffix(path).lower())


def _is_line_file(path: Path) -> bool:
    return not path.is_dir() and _format(path) is None


def _in_folder(folder: Path, source: str, target: str) -> Iterable[Text]:
    """Return the texts of a folder. An uncompressed file takes precedence over its .gz."""
    files: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if path.is_file() and not path.name.startswith("."):
            files.setdefault(decompressed_name(path).name, path)
    texts: list[Text] = []
    for name, path in files.items():
        if open_format := _format(path):
            texts.append(open_format(path, source, target))
        elif name.endswith(f".{source}"):
            other = files.get(f"{name.removesuffix(source)}{target}")
            texts += [] if other is None else [Aligned(path, other)]
    if not texts:
        raise UserError(
            f"{folder}: contains no text; add .tsv, .csv, .jsonl or .tmx files, or two aligned "
            f"files such as train.{source} and train.{target}"
        )
    return texts


def _columns(header: Sequence[str], source: str, target: str) -> tuple[int, int] | None:
    """Return the columns of source and target if a row names them."""
    names = [cell.strip().lower() for cell in header]
    for first, second in ((source.lower(), target.lower()), ROLES):
        if first in names and second in names:
            return names.index(first), names.index(second)
    return None


def _cell(row: Sequence[str], column: int) -> str:
    return row[column] if column < len(row) else ""


def _single_line(text: str) -> str:
    """Replace line breaks with spaces: everywhere in tfnmt a sentence is one line."""
    return text.replace("\r\n", " ").replace("\n", " ")


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


def _units(events: Iterable[tuple[str, Element]]) -> Iterator[Element]:
    """Yield the translation units of a TMX file and free each after use."""
    body: Element | None = None
    for event, element in events:
        if event == "start" and _tag(element) == "body":
            body = element
        elif event == "end" and _tag(element) == "tu":
            yield element
            if body is not None:
                body.clear()


def _tag(element: Element) -> str:
    """Return the name of an element without its namespace."""
    return element.tag.rpartition("}")[2]


def _variant(unit: Element, language: str, other: str) -> Element | None:
    """Return the variant of a unit in a language: an exact match, or the first similar one."""
    wanted = _subtags(language)
    exact_only = wanted[0] == _subtags(other)[0]  # pt-BR to pt-PT: neither replaces the other
    near = None
    for variant in unit:
        if _tag(variant) != "tuv":
            continue
        has = _subtags(variant.get(XML_LANG, "") or variant.get("lang", ""))
        if has == wanted:
            return variant
        if near is None and has[0] == wanted[0] and not exact_only:
            near = variant
    return near


def _subtags(language: str) -> list[str]:
    return language.strip().lower().replace("_", "-").split("-")


def _sentence(variant: Element | None) -> str:
    """Return the text of a variant on one line."""
    segments = [] if variant is None else [child for child in variant if _tag(child) == "seg"]
    text = _plain_text(segments[0]) if segments else ""
    if "\n" not in text:
        return text
    # White space around a line break of the XML is indentation. This includes only XML's own white
    # space, which excludes the no-break space.
    lines = (line.strip(" \t\r") for line in text.split("\n"))
    return " ".join(line for line in lines if line)


def _plain_text(element: Element) -> str:
    """Return the text of a segment without the code in its inline tags."""
    parts = [element.text or ""]
    for child in element:
        if _tag(child) not in CODE_TAGS:
            parts.append(_plain_text(child))
        parts.append(child.tail or "")
    return "".join(parts)
