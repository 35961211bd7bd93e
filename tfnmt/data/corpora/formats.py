"""One's own parallel text in the formats it comes in: aligned files, TSV, CSV, JSON lines, TMX."""

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

from tfnmt.data.corpora.text_files import Pair, open_bytes, read_lines, read_pairs, unpacked_name
from tfnmt.errors import UsageError, UserError

ROLES = ("source", "target")
"""What columns and keys may be called in place of the languages."""

LARGEST_CELL = 2**24
"""Characters in a CSV cell; a longer one is a quote that was never closed."""

CODE_TAGS = {"bpt", "ept", "ph", "it", "ut", "sub"}
"""TMX tags whose text is markup of the translated document, not part of the sentence."""

SURROGATES = re.compile("[\ud800-\udfff]")

XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"


class Text(Protocol):
    """Parallel text in one direction."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files it is in."""

    def pairs(self, errors: str = "strict") -> Iterator[Pair]:
        """(source, target) sentences in their order; a side that is missing is empty.

        `errors` is what becomes of bytes that are not UTF-8, as in `open`.
        """


@dataclass(frozen=True)
class Aligned:
    """Two files: line N of one translates line N of the other."""

    source: Path
    target: Path

    @property
    def paths(self) -> tuple[Path, ...]:
        """The file of the source and that of the target."""
        return (self.source, self.target)

    def pairs(self, errors: str = "strict") -> Iterator[Pair]:
        """(source, target) sentences in their order."""
        return read_pairs(self.source, self.target, errors)


@dataclass(frozen=True)
class _OneFile(ABC):
    """A file that holds both sides; `source` and `target` are languages."""

    path: Path
    source: str
    target: str

    @property
    def paths(self) -> tuple[Path, ...]:
        """The file."""
        return (self.path,)

    def pairs(self, errors: str = "strict") -> Iterator[Pair]:
        """(source, target) sentences in their order; raises when there is not one sentence."""
        empty = True
        for pair in self._pairs(errors):
            empty = empty and not any(pair)
            yield pair
        if empty:
            raise UserError(
                f"{self.path}: no {self.source} or {self.target} text in it; "
                "check the file and the two languages"
            )

    @abstractmethod
    def _pairs(self, errors: str) -> Iterator[Pair]:
        """(source, target) sentences in their order."""


@dataclass(frozen=True)
class TSV(_OneFile):
    """Cells between tabs, never quoted: source and target, or what a header says."""

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
                f"{self.path}: no tab in it; {self.source} TAB {self.target} is expected on a line"
            )


@dataclass(frozen=True)
class CSV(_OneFile):
    """Cells between commas, in quotes where need be, beneath a header."""

    def _pairs(self, errors: str) -> Iterator[Pair]:
        # The limit is one for the whole process: it is only ever raised.
        csv.field_size_limit(max(LARGEST_CELL, csv.field_size_limit()))
        # Unless strict, a quote that is never closed swallows the rest of the file in silence.
        rows = csv.reader((f"{line}\n" for line in read_lines(self.path, errors)), strict=True)
        start = 1
        try:
            header = next(rows, [])
            columns = _columns(header, self.source, self.target)
            if columns is None:
                raise UserError(
                    f"{self.path}:1: the columns are {', '.join(header) or 'none'}; a header row "
                    f"with {self.source} and {self.target}, or source and target, is expected, "
                    "with commas between"
                )
            start = rows.line_num + 1
            for row in rows:
                if any(row[len(header) :]):
                    raise csv.Error(f"{len(row)} cells below {len(header)} columns")
                if row:
                    yield _on_one_line(_cell(row, columns[0])), _on_one_line(_cell(row, columns[1]))
                start = rows.line_num + 1
        except csv.Error as error:
            raise UserError(
                f"{self.path}:{start}: no CSV row ({error}); put a cell with quotes, commas or "
                "line breaks into quotes, and double the quotes inside it"
            ) from error


@dataclass(frozen=True)
class JSONLines(_OneFile):
    """A JSON object a line, its keys the languages or `source` and `target`."""

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
                    f"{self.path}:{number}: not a JSON object; one is expected on each line, "
                    f'as in {{"{self.source}": "...", "{self.target}": "..."}}'
                )
            inner = record.get("translation")  # where the data sets of Hugging Face have both
            record = inner if isinstance(inner, dict) else record
            languages = (self.source, self.target)
            # Not each side for itself: beside languages, "source" often says where text is from.
            keys = ROLES if record.keys().isdisjoint(languages) else languages
            place = f"{self.path}:{number}"
            yield _string(record, keys[0], place, errors), _string(record, keys[1], place, errors)


@dataclass(frozen=True)
class TMX(_OneFile):
    """Translation Memory eXchange: XML, with any number of languages in a unit."""

    def _pairs(self, errors: str) -> Iterator[Pair]:
        del errors  # expat knows the encoding from the file and takes nothing that is not in it
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
                "export the TMX again, or mend it there"
            ) from error
        except DefusedXmlException as error:
            raise UserError(
                f"{self.path}: declares entities, which tfnmt does not expand; remove the DOCTYPE"
            ) from error
        except (LookupError, ValueError) as error:
            raise UserError(
                f"{self.path}: in an encoding that cannot be read ({error}); convert it to UTF-8"
            ) from error


FORMATS: dict[str, Callable[[Path, str, str], Text]] = {
    ".tsv": TSV,
    ".csv": CSV,
    ".jsonl": JSONLines,
    ".ndjson": JSONLines,
    ".tmx": TMX,
}
"""The formats that hold both sides in one file, by suffix; .gz may follow."""


def find_texts(names: Sequence[Path], source: str, target: str) -> tuple[Text, ...]:
    """The texts that files and folders hold, in their order."""
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
                    f"{name}: has no second file beside it; name two aligned files, or a .tsv, "
                    ".csv, .jsonl or .tmx"
                )
            backwards = (_suffix(name), _suffix(second)) == (f".{target}", f".{source}")
            texts.append(Aligned(second, name) if backwards else Aligned(name, second))
    return tuple(texts)


def languages_of(names: Sequence[Path]) -> tuple[str, str] | None:
    """(source, target) as the first two files say by their suffixes, where they are aligned."""
    first_two = names[:2]
    languages = [_suffix(name).removeprefix(".") for name in first_two if _is_line_file(name)]
    return (languages[0], languages[1]) if len(languages) == 2 and all(languages) else None


def _suffix(path: Path) -> str:
    return unpacked_name(path).suffix


def _format(path: Path) -> Callable[[Path, str, str], Text] | None:
    return FORMATS.get(_suffix(path).lower())


def _is_line_file(path: Path) -> bool:
    return not path.is_dir() and _format(path) is None


def _in_folder(folder: Path, source: str, target: str) -> Iterable[Text]:
    """The texts of a folder; of a file that is there packed and unpacked, the unpacked one."""
    files: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if path.is_file() and not path.name.startswith("."):
            files.setdefault(unpacked_name(path).name, path)
    texts: list[Text] = []
    for name, path in files.items():
        if open_format := _format(path):
            texts.append(open_format(path, source, target))
        elif name.endswith(f".{source}"):
            other = files.get(f"{name.removesuffix(source)}{target}")
            texts += [] if other is None else [Aligned(path, other)]
    if not texts:
        raise UserError(
            f"{folder}: no text in it; .tsv, .csv, .jsonl and .tmx files are looked for, and two "
            f"aligned files as in train.{source} and train.{target}"
        )
    return texts


def _columns(header: Sequence[str], source: str, target: str) -> tuple[int, int] | None:
    """The columns of source and target, if a row names them."""
    names = [cell.strip().lower() for cell in header]
    for first, second in ((source.lower(), target.lower()), ROLES):
        if first in names and second in names:
            return names.index(first), names.index(second)
    return None


def _cell(row: Sequence[str], column: int) -> str:
    return row[column] if column < len(row) else ""


def _on_one_line(text: str) -> str:
    """The text with a space for each line break: a sentence is a line everywhere in tfnmt."""
    return text.replace("\r\n", " ").replace("\n", " ")


def _string(record: dict[str, Any], key: str, place: str, errors: str) -> str:
    """One side of a JSON object, empty where it is missing."""
    text = record.get(key)
    if text is None:
        return ""
    if not isinstance(text, str):
        raise UserError(f'{place}: "{key}" is not a string; one is expected')
    # \ud83d alone is half a character: JSON may say it, but no UTF-8 file can hold it.
    if errors == "strict" and SURROGATES.search(text):
        raise UserError(f'{place}: "{key}" has half a surrogate pair in it; mend the text there')
    return _on_one_line(text)


def _units(events: Iterable[tuple[str, Element]]) -> Iterator[Element]:
    """The translation units of a TMX file, each dropped once it is used."""
    body: Element | None = None
    for event, element in events:
        if event == "start" and _tag(element) == "body":
            body = element
        elif event == "end" and _tag(element) == "tu":
            yield element
            if body is not None:
                body.clear()


def _tag(element: Element) -> str:
    """The name of an element, whatever its namespace."""
    return element.tag.rpartition("}")[2]


def _variant(unit: Element, language: str, other: str) -> Element | None:
    """The variant of a unit in a language: the exact one, else the first of the same language."""
    wanted = _subtags(language)
    exact_only = wanted[0] == _subtags(other)[0]  # pt-BR to pt-PT: neither stands for the other
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
    """The text of a variant, on one line."""
    segments = [] if variant is None else [child for child in variant if _tag(child) == "seg"]
    text = _plain_text(segments[0]) if segments else ""
    if "\n" not in text:
        return text
    # Only where the XML is broken into lines is white space beside a break indentation; and only
    # XML's own, which the no-break space is not.
    lines = (line.strip(" \t\r") for line in text.split("\n"))
    return " ".join(line for line in lines if line)


def _plain_text(element: Element) -> str:
    """What a segment says, without the code in its inline tags."""
    parts = [element.text or ""]
    for child in element:
        if _tag(child) not in CODE_TAGS:
            parts.append(_plain_text(child))
        parts.append(child.tail or "")
    return "".join(parts)
