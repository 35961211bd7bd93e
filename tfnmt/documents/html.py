"""HTML: read with an HTML5 parser, and written with the tags back around their words.

Blocks, attributes, comments, scripts and code stay unchanged. The text of blocks is translated, and
so are the attributes that people read.
"""

import re
from collections.abc import Mapping, Sequence
from html import escape
from itertools import count
from typing import NamedTuple

from selectolax.lexbor import LexborNode

from tfnmt.documents.html_parser import SPACE, is_too_costly, parse, siblings
from tfnmt.documents.segments import (
    Document,
    Piece,
    Segment,
    cut,
    joined,
    mark_changes,
    text_segment,
)
from tfnmt.errors import UserError


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


BLOCKS = _names(
    "address article aside blockquote body caption center col colgroup dd details dialog dir div "
    "dl dt fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header "
    "hgroup hr html legend li listing main menu nav ol optgroup option p plaintext pre search "
    "section summary table tbody td tfoot th thead title tr ul xmp"
)
"""Elements that end a sentence. All others are inline, also those that HTML does not know."""

OBJECTS = _names("audio button embed img input meter object picture progress select video")
"""Elements that are moved as a whole, with their content, which is translated on its own."""

CODE = _names("code kbd samp var")
"""Elements in a sentence whose text is not translated, but which the model reads as a word."""

OPAQUE = _names(
    "applet area base basefont bgsound canvas iframe link listing map math meta noembed noframes "
    "noscript param plaintext pre rp rt rtc script source style svg template textarea track "
    "wbr xmp"
)
"""Elements that are not translated."""

VOID = _names(
    "area base basefont bgsound br col embed frame hr img input keygen link meta param source "
    "track wbr"
)
"""Elements without an end tag."""

FOREIGN = _names("math svg")
"""Elements of other languages than HTML."""

RAW_TEXT = _names("iframe noembed noframes plaintext script style xmp")
"""Elements of HTML whose text has no escapes."""

LEADING_BREAK = _names("listing pre textarea")

TRANSLATED_ATTRIBUTES = ("alt", "aria-label", "placeholder", "title")
UNIQUE_ATTRIBUTES = ("id", "name")

SPACES = re.compile(f"[{SPACE}]+")
MAX_DEPTH = 200
MAX_CODE = 200
"""Characters of code that the model reads as a word. Longer code is an object."""


class Attribute(NamedTuple):
    """The value of an attribute that is translated."""

    segment: Segment


Part = str | Segment | Attribute
"""Literal HTML, or text whose translation is written in its place."""


class Tag(NamedTuple):
    """The mark of an inline element."""

    number: int  # two elements are different marks, even if they look the same
    start: tuple[Part, ...]
    again: tuple[Part, ...]
    """The start tag of a second element, if the words of the first one are apart: without its id,
    which must be unique."""
    end: str

    def __hash__(self) -> int:
        return self.number


class _Output:
    """The parts of the page that have been read, and the pieces of the block that is open."""

    def __init__(self, segments: list[Segment]) -> None:
        self.parts: list[Part] = []
        self.segments = segments
        self._open: list[Piece] = []

    def add(self, piece: Piece) -> None:
        """Add a piece to the block."""
        self._open.append(piece)

    def literal(self, *parts: Part) -> None:
        """End the block and add HTML."""
        self.flush()
        self.parts += parts

    def flush(self) -> None:
        """End the block. White space within it is collapsed, and kept at its ends."""
        pieces, self._open = self._open, []
        text = joined(pieces)
        content = text.strip(SPACE)
        if not pieces:
            return
        start = len(text) - len(text.lstrip(SPACE))
        end = start + len(content)
        if not content:
            start = end = len(text) if pieces[-1].text else 0
        inner = [
            piece if piece.atom is not None else piece._replace(text=SPACES.sub(" ", piece.text))
            for piece in cut(pieces, start, end if end < len(text) else end + 1)
        ]
        segment = Segment(inner)
        self.parts += [Segment(list(cut(pieces, 0, start))), segment]
        self.parts.append(Segment(list(cut(pieces, end, len(text) + 1)) if end < len(text) else []))
        self.segments.append(segment)


def read_html(text: str) -> Document:
    """Read a page, or a part of one.

    Args:
        text: The HTML.

    Raises:
        UserError: The page takes too much time or memory to parse, or its elements are nested too
            deeply.
    """
    try:
        costly = is_too_costly(text)
    except OSError as error:
        raise UserError(
            f"HTML: no process to parse it with ({error.strerror}); try again later"
        ) from error
    if costly:
        raise UserError(
            "HTML: takes too much time or memory to parse; add missing end tags, such as </b>, and "
            "nest fewer elements"
        )
    doctype, nodes = parse(text)
    reader = _Reader(nodes)
    for node in nodes:
        reader.read(node, (), 0)
    output = reader.output
    output.flush()
    return Document(output.segments, lambda: (doctype + _write(output.parts)).encode())


class _Reader:
    """Walks through the nodes of a page in their order."""

    def __init__(self, nodes: Sequence[LexborNode]) -> None:
        self.output = _Output([])
        self._tags = count()
        self._with_blocks: set[int] = set()
        """Elements that contain a block."""
        self._with_text: set[int] = set()
        foreign: set[int] = set()
        """SVG and MathML, whose elements are no blocks even if they are called `title`."""
        for node in (node for top in nodes for node in top.traverse(include_text=True)):
            if node.is_text_node:
                if (node.text_content or "").strip(SPACE):
                    _mark_ancestors(node, self._with_text)
            elif node.tag in FOREIGN or (node.parent and node.parent.mem_id in foreign):
                foreign.add(node.mem_id)
            elif node.tag in BLOCKS:
                _mark_ancestors(node, self._with_blocks)

    def read(self, node: LexborNode, marks: tuple[Tag, ...], depth: int) -> None:
        """Read a node with its children.

        Args:
            node: The node.
            marks: The inline elements around it.
            depth: The number of elements around it.

        Raises:
            UserError: The elements are nested too deeply.
        """
        check_depth(depth)
        if node.is_text_node:
            self.output.add(Piece(node.text_content or "", marks))
        elif node.is_element_node:
            self._element(node, marks, depth)
        elif node.tag != "-doctype":
            self.output.add(Piece("", marks, (node.html or "",)))

    def _element(self, node: LexborNode, marks: tuple[Tag, ...], depth: int) -> None:
        tag = node.tag or ""
        if tag == "br":
            self.output.add(Piece("\n", marks, _start_tag(node, {})))
        elif tag in OPAQUE or tag in CODE or _is_excluded(node):
            self._literal(node, marks, depth)
        elif tag in BLOCKS or node.mem_id in self._with_blocks:
            self._container(node, depth)
        elif tag in OBJECTS or node.mem_id not in self._with_text:
            self.output.add(Piece("", marks, self._nested(node, depth)))
        else:
            texts = self._read_attributes(node)
            start, again = _start_tag(node, texts), _start_tag(node, texts, UNIQUE_ATTRIBUTES)
            mark = Tag(next(self._tags), start, again, f"</{tag}>")
            for child in siblings(node.first_child):
                self.read(child, (*marks, mark), depth + 1)

    def _literal(self, node: LexborNode, marks: tuple[Tag, ...], depth: int) -> None:
        """Read an element that is not translated, as a block, a word or an object."""
        html = _literal_html(node, depth)
        if node.tag in BLOCKS or node.mem_id in self._with_blocks:
            self.output.literal(html)
            return
        text = "" if node.tag in OPAQUE else SPACES.sub(" ", node.text()).strip()
        self.output.add(Piece(text if len(text) <= MAX_CODE else "", marks, (html,)))

    def _container(self, node: LexborNode, depth: int) -> None:
        """Read a block, or an inline element with blocks inside."""
        self.output.literal(*_start_tag(node, self._read_attributes(node)))
        for child in siblings(node.first_child):
            self.read(child, (), depth + 1)
        self.output.flush()
        if node.tag not in VOID:
            self.output.literal(f"</{node.tag}>")

    def _nested(self, node: LexborNode, depth: int) -> tuple[Part, ...]:
        """Return the parts of an element whose content is translated on its own."""
        outer, self.output = self.output, _Output(self.output.segments)
        self._container(node, depth)
        inner, self.output = self.output, outer
        return tuple(inner.parts)

    def _read_attributes(self, node: LexborNode) -> dict[str, Attribute]:
        """Return the attributes that people read."""
        attributes = {
            name: Attribute(text_segment(value))
            for name, value in node.attributes.items()
            if name in TRANSLATED_ATTRIBUTES and value and value.strip()
        }
        self.output.segments.extend(attribute.segment for attribute in attributes.values())
        return attributes


def check_depth(depth: int) -> None:
    """Raise a UserError if elements are nested too deeply."""
    if depth > MAX_DEPTH:
        raise UserError(f"HTML: nested deeper than {MAX_DEPTH} elements; remove some")


def _mark_ancestors(node: LexborNode, marked: set[int]) -> None:
    parent = node.parent
    while parent is not None and parent.mem_id not in marked:
        marked.add(parent.mem_id)
        parent = parent.parent


def _is_excluded(node: LexborNode) -> bool:
    """Return whether the author excludes an element from translation."""
    attributes = node.attributes
    return (attributes.get("translate") or "").lower() == "no" or "notranslate" in (
        attributes.get("class") or ""
    ).split()


def _start_tag(
    node: LexborNode, texts: Mapping[str, Attribute], without: Sequence[str] = ()
) -> tuple[Part, ...]:
    """Return the start tag of an element, with segments for the attributes that people read."""
    parts: list[Part] = [f"<{node.tag}"]
    for name, value in node.attributes.items():
        if name in texts:
            parts += [f' {name}="', texts[name], '"']
        elif name not in without:
            parts.append(f' {name}="{_escape_attribute(value or "")}"')
    return (*parts, ">")


def _literal_html(node: LexborNode, depth: int = 0, foreign: bool = False) -> str:
    """Return the HTML of a node without a translation.

    The parser's own serializer writes the text of `<svg><style>` without escapes, as for HTML. A
    browser would then read markup where there was text.

    Args:
        node: The node.
        depth: The number of elements around it.
        foreign: Whether it is in SVG or MathML.
    """
    check_depth(depth)
    tag = node.tag or ""
    if node.is_text_node:
        raw = not foreign and node.parent is not None and node.parent.tag in RAW_TEXT
        return (node.text_content or "") if raw else _escape(node.text_content or "")
    if not node.is_element_node:
        return "" if tag == "-doctype" else node.html or ""
    start = "".join(part for part in _start_tag(node, {}) if isinstance(part, str))
    if tag in VOID and not foreign:
        return start
    foreign = tag in FOREIGN or (foreign and tag != "foreignObject")
    first = node.first_child
    if tag == "template" and not foreign and (contents := node.template_fragments()):
        first = contents[0].first_child
    children = [_literal_html(child, depth + 1, foreign) for child in siblings(first)]
    # The parser drops a line break after these start tags.
    lost = tag in LEADING_BREAK and children[:1] and children[0].startswith("\n")
    return "".join((start, "\n" if lost else "", *children, f"</{tag}>"))


# --- Writing --------------------------------------------------------------------------------------


def _write(parts: Sequence[Part]) -> str:
    return "".join(map(_write_part, parts))


def _write_part(part: Part) -> str:
    if isinstance(part, Attribute):
        return _escape_attribute(part.segment.translated_text)
    return part if isinstance(part, str) else _write_pieces(part.translation)


def _write_pieces(pieces: Sequence[Piece]) -> str:
    """Write pieces, with a start tag and an end tag for each change of the marks."""
    result: list[str] = []
    for piece, ending, beginning in mark_changes((*pieces, Piece(""))):
        result += [mark.end for mark in ending]
        result += [_write(mark.again if again else mark.start) for mark, again in beginning]
        result.append(_write(piece.atom) if piece.atom is not None else _escape(piece.text))
    return "".join(result)


def _escape(text: str) -> str:
    return escape(text, quote=False).replace("\u00a0", "&nbsp;")


def _escape_attribute(value: str) -> str:
    return _escape(value).replace('"', "&quot;")
