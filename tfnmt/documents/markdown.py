"""Markdown: paragraphs, headings and table cells are replaced in the source, the rest is kept."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

from tfnmt.documents.archive import Limits
from tfnmt.documents.plain import decode_within
from tfnmt.documents.segments import (
    Document,
    Marks,
    Piece,
    Segment,
    common_marks,
    mark_changes,
)

FRONT_MATTER = re.compile(r"\A---[ \t]*\n.*?\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)

SPECIAL = re.compile(r"[\\`*_\[\]<>~]|&(?=#?\w+;)")
LINE_START = re.compile(r"\A(?=[-+#=])|\A(\d{1,9})(?=[.)](?:\s|\Z))")
"""The beginning of a text that would be a list item or a heading."""
TASK = re.compile(r"\A\[[ xX]\](?= )")
"""The box of a task."""

EMPHASIS = {"strong": "**", "em": "*", "s": "~~"}


class Markup(NamedTuple):
    """The mark of emphasis or of a link."""

    number: int  # two links are different marks, even to the same address
    start: str
    end: str


class Image(NamedTuple):
    """An image; its description is translated."""

    description: Segment
    address: str


BREAK = "\\\n"
"""A hard line break."""


@dataclass(frozen=True)
class _Edit:
    """A part of the source that is replaced by the translation of a segment."""

    start: int
    end: int
    segment: Segment
    prefix: str
    """The beginning of a further line, such as `> ` in a quotation."""
    in_table: bool


def read_markdown(content: bytes, name: str, limits: Limits) -> Document:
    """Read Markdown with the tables and the strikethrough of GitHub.

    Args:
        content: The file.
        name: Its name in messages.
        limits: Its limits.

    Raises:
        UserError: The file is too long, or not UTF-8.
    """
    text = decode_within(limits, content, name)
    source = text.replace("\r\n", "\n").replace("\r", "\n")
    front = FRONT_MATTER.match(source)
    start = front.end() if front else 0
    reader = _Reader(source, start)
    edits = list(reader.read())

    def write() -> bytes:
        parts, end = [], 0
        for edit in edits:
            parts += [source[end : edit.start], _write(edit)]
            end = edit.end
        return "".join((*parts, source[end:])).encode()

    return Document([*(edit.segment for edit in edits), *reader.descriptions], write)


class _Reader:
    """Finds the texts of the blocks in the source."""

    def __init__(self, source: str, start: int) -> None:
        self._source = source
        self._start = start
        self._numbers = count()
        self.descriptions: list[Segment] = []
        """Descriptions of images."""

    def read(self) -> Iterator[_Edit]:
        """Yield the texts in their order."""
        text = self._source[self._start :]
        lines = text.split("\n")
        positions = [self._start]
        for line in lines:
            positions.append(positions[-1] + len(line) + 1)
        parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
        end = self._start
        previous = ""
        for token in parser.parse(text):
            if token.type == "inline" and token.map and token.content.strip():
                in_table = previous in ("th_open", "td_open")
                found = self._locate(token, lines, positions, end)
                if found:
                    first, end, prefix = found
                    segment = Segment(list(self._pieces(token.children or (), ())))
                    yield _Edit(first, end, segment, prefix, in_table)
            previous = token.type

    def _locate(
        self, token: Token, lines: Sequence[str], positions: Sequence[int], end: int
    ) -> tuple[int, int, str] | None:
        """Return the position of a text, and the beginning of its second line.

        Returns None if the parser has changed the text, as it does for `|` in a table.
        """
        assert token.map is not None
        content = token.content.split("\n")
        number = token.map[0]
        starts: list[int] = []
        for offset, line in enumerate(content):
            if number + offset >= len(lines):
                return None
            begin = (
                max(end, positions[number + offset]) if not offset else positions[number + offset]
            )
            found = self._source.find(line, begin, positions[number + offset + 1])
            if found < 0:
                return None
            starts.append(found)
        last = len(content) - 1
        prefix = self._source[positions[number + 1] : starts[1]] if last else ""
        return starts[0], starts[-1] + len(content[-1]), prefix

    def _pieces(self, tokens: Sequence[Token], marks: Marks) -> Iterator[Piece]:
        """Yield the text of inline tokens."""
        autolink = False
        for token in tokens:
            kind = token.type
            name, _, side = kind.rpartition("_")
            if name == "link" and token.markup == "autolink":
                autolink = side == "open"
            elif autolink:
                yield Piece(token.content, marks, f"<{token.content}>")
            elif side == "open":
                marks = (*marks, self._markup(name, token))
            elif side == "close":
                marks = marks[:-1]
            elif kind in ("text", "text_special"):
                box = TASK.match(token.content) if token is tokens[0] else None
                if box:
                    yield Piece("", marks, box[0])
                yield Piece(token.content[box.end() if box else 0 :], marks)
            elif kind == "softbreak":
                yield Piece(" ", marks)
            elif kind == "hardbreak":
                yield Piece("\n", marks, BREAK)
            elif kind == "image":
                description = Segment(list(self._pieces(token.children or (), ())))
                self.descriptions.append(description)
                yield Piece("", marks, Image(description, _address(token, "src")))
            elif kind == "code_inline":
                fence = token.markup
                yield Piece(token.content, marks, f"{fence}{_code(token.content)}{fence}")
            else:
                yield Piece("", marks, token.content)

    def _markup(self, name: str, token: Token) -> Markup:
        number = next(self._numbers)
        if name != "link":
            return Markup(number, EMPHASIS[name], EMPHASIS[name])
        return Markup(number, "[", f"]({_address(token, 'href')})")


def _address(token: Token, name: str) -> str:
    """Return an address and a title as they follow the text of a link."""
    address = str(token.attrs.get(name, ""))
    if not address or re.search(r"[\s()<>]", address):
        address = f"<{address}>"
    title = str(token.attrs.get("title", "")).replace('"', '\\"').replace("\n", " ")
    return f'{address} "{title}"' if title else address


def _code(content: str) -> str:
    """Return code with the spaces that separate it from its fence."""
    return f" {content} " if content.startswith("`") or content.endswith("`") else content


# --- Writing --------------------------------------------------------------------------------------


def _write(edit: _Edit) -> str:
    text = _write_pieces(edit.segment.translation)
    text = LINE_START.sub(lambda match: (match[1] or "") + "\\", text)
    if edit.in_table:
        return re.sub(r"(?<!\\)\|", r"\\|", text).replace(BREAK, " ")
    return text.replace("\n", "\n" + edit.prefix)


def _write_pieces(pieces: Sequence[Piece]) -> str:
    """Write pieces. White space at the ends of emphasis is moved out, as Markdown requires."""
    result: list[str] = []
    for piece, ending, beginning in mark_changes((*_without_empty_marks(pieces), Piece(""))):
        if ending:
            text, space = _split_space(result.pop())
            result += [text, *(mark.end for mark in ending), space]
        text = _atom(piece.atom) if piece.atom is not None else SPECIAL.sub(r"\\\g<0>", piece.text)
        if beginning:
            result.append(text[: len(text) - len(text.lstrip())])
            text = text.lstrip()
        result += [*(mark.start for mark, _ in beginning), text]
    return "".join(result)


def _without_empty_marks(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """Yield pieces. No mark begins at a blank piece, because Markdown has no empty marks."""
    marks: Marks = ()
    for piece in pieces:
        if piece.text.strip() or piece.atom is not None:
            marks = piece.marks
            yield piece
        elif piece.text:
            marks = common_marks(marks, piece.marks)
            yield piece._replace(marks=marks)


def _split_space(text: str) -> tuple[str, str]:
    """Split off the white space at the end, or a whole line break."""
    end = 0 if text == BREAK else len(text.rstrip())
    return text[:end], text[end:]


def _atom(atom: str | Image) -> str:
    if isinstance(atom, Image):
        return f"![{_write_pieces(atom.description.translation)}]({atom.address})"
    return atom
