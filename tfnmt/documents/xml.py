"""XML: hardened parsing, and mixed content as segments."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import unescape
from typing import Literal

from lxml import etree

from tfnmt.documents.segments import Marks, Piece, Segment, mark_changes, merged
from tfnmt.errors import UserError

Element = etree._Element
Tree = etree._ElementTree

XML_SPACE = "{http://www.w3.org/XML/1998/namespace}space"
XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
LINK_TARGET = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
"""An attribute of an office document that refers to an id elsewhere."""

Kind = Literal["inline", "object", "break", "space", "block"]
Classify = Callable[[Element], Kind]
"""Returns the role of an element within a block: around words, moved as a whole, the end of a
sentence, replaced by a space, or a block of its own."""

SPACES = re.compile(r"[ \t\r\n]+")
MAX_DEPTH = 200
MAX_TAGS = 1_000_000
"""An element of a few bytes takes about a hundred in memory."""
MANY_ELEMENTS = 20_000
MAX_STEPS = 30_000_000_000
"""Maximum steps to take the children of blocks out, a few seconds. For a child, lxml takes steps
that grow with the square of the elements inside."""

_count_elements = etree.XPath("count(descendant::*)")


def parse_xml(content: bytes, name: str) -> Tree:
    """Parse a file without external files, and without entities that it defines.

    Args:
        content: The file.
        name: Its name in messages.

    Raises:
        UserError: The file is no well-formed XML, is too large, or defines entities.
    """
    if content.count(b"<") > MAX_TAGS:
        raise UserError(f"{name}: more than {MAX_TAGS:,} tags; split the document")
    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, strip_cdata=False
    )
    try:
        tree = etree.ElementTree(etree.fromstring(content, parser))
    except (etree.XMLSyntaxError, ValueError, LookupError) as error:
        raise UserError(f"{name}: no well-formed XML: {error}; save it again") from error
    definitions = tree.docinfo.internalDTD
    if definitions is not None and any(True for _ in definitions.iterentities()):
        raise UserError(f"{name}: defines XML entities, which are not allowed; remove them")
    depth = 0
    for event, _ in etree.iterwalk(tree, events=("start", "end")):
        depth += 1 if event == "start" else -1
        if depth > MAX_DEPTH:
            raise UserError(f"{name}: nested deeper than {MAX_DEPTH} elements; remove some")
    return tree


def write_xml(tree: Tree) -> bytes:
    """Return the file."""
    standalone = tree.docinfo.standalone or None
    return etree.tostring(tree, xml_declaration=True, encoding="UTF-8", standalone=standalone)


def local_name(element: Element) -> str:
    """Return the name of an element without its namespace; '' for a comment or an instruction."""
    return etree.QName(element).localname if isinstance(element.tag, str) else ""


def is_translated(element: Element) -> bool:
    """Return whether an element is to be translated, by the nearest attribute `translate`."""
    values = (each.get("translate") for each in (element, *element.iterancestors()))
    return next((value for value in values if value is not None), "yes") != "no"


@dataclass(frozen=True)
class Inline:
    """The mark of an element around words. Each element is a mark of its own."""

    element: Element

    def open(self, parent: Element, again: bool) -> Element:
        """Append an empty copy of the element. Only the first one has its id."""
        attributes = {
            name: value
            for name, value in self.element.attrib.items()
            if not (again and etree.QName(name).localname == "id") or name == LINK_TARGET
        }
        return etree.SubElement(parent, self.element.tag, attributes)


@dataclass(eq=False)
class Block:
    """An element with segments and blocks as its content."""

    element: Element
    items: Sequence[Segment | Element]

    def write(self) -> None:
        """Replace the content by its translation."""
        element = self.element
        for child in list(element):
            element.remove(child)
        element.text = None
        for item in self.items:
            if isinstance(item, Segment):
                write_pieces(element, item.translation, append_text)
            else:
                item.tail = None
                element.append(item)


def read_block(element: Element, classify: Classify) -> Block:
    """Read the content of an element. Blocks inside are not read."""
    items: list[Segment | Element] = []
    pieces: list[Piece] = []

    def flush() -> None:
        if pieces:
            items.append(Segment(list(pieces)))
            pieces.clear()

    for item in _content(element, (), classify):
        if isinstance(item, Piece):
            pieces.append(item)
        else:
            flush()
            items.append(item)
    flush()
    return Block(element, items)


def collapse_space(block: Block) -> Block:
    """Replace line breaks and indentation within text by a space, as XHTML and ODF define."""
    for segment in segments_of([block]):
        pieces = merged(segment.pieces)
        if segment.text.strip():
            pieces = [
                piece
                if piece.atom is not None
                else piece._replace(text=SPACES.sub(" ", piece.text))
                for piece in pieces
            ]
        segment.pieces = segment.translation = pieces
    return block


def check_blocks(blocks: Sequence[Block], name: str) -> None:
    """Raise a UserError if replacing the content of blocks takes too long.

    Args:
        blocks: The blocks of a document.
        name: Its name in messages.
    """
    large = (block.element for block in blocks if _count_elements(block.element) > MANY_ELEMENTS)
    if sum(_count_elements(child) ** 2 for element in large for child in element) > MAX_STEPS:
        raise UserError(f"{name}: paragraphs with too many elements; divide them")


def segments_of(blocks: Sequence[Block]) -> list[Segment]:
    """Return the segments of blocks."""
    return [item for block in blocks for item in block.items if isinstance(item, Segment)]


def _content(element: Element, marks: Marks, classify: Classify) -> Iterator[Piece | Element]:
    if element.text:
        yield Piece(element.text, marks)
    for child in list(element):
        tail, child.tail = child.tail, None
        if isinstance(child, etree._Entity):
            yield Piece(unescape(child.text or ""), marks)
        elif not isinstance(child.tag, str):  # a comment or an instruction
            yield Piece("", marks, child)
        else:
            yield from _child(child, marks, classify)
        if tail:
            yield Piece(tail, marks)


def _child(child: Element, marks: Marks, classify: Classify) -> Iterator[Piece | Element]:
    kind = classify(child)
    if kind == "inline" and "".join(child.itertext()).strip():
        yield from _content(child, (*marks, Inline(child)), classify)
    elif kind == "block":
        yield child
    elif kind == "space":
        yield Piece(" ", marks)
    else:
        yield Piece("\n" if kind == "break" else "", marks, child)


def append_text(parent: Element, text: str) -> None:
    """Append text to the content of an element."""
    # Neither len(parent) nor parent[-1], which take time for each child.
    last = next(parent.iterchildren(reversed=True), None)
    if last is None:
        parent.text = (parent.text or "") + text
    else:
        last.tail = (last.tail or "") + text


def write_pieces(
    parent: Element, pieces: Sequence[Piece], append: Callable[[Element, str], None]
) -> None:
    """Append pieces to an element.

    Args:
        parent: The element.
        pieces: The pieces, whose marks have the method `open`.
        append: Appends text.
    """
    parents = [parent]
    for piece, ending, beginning in mark_changes(pieces):
        del parents[len(parents) - len(ending) :]
        for mark, again in beginning:
            parents.append(mark.open(parents[-1], again))
        if piece.atom is None:
            append(parents[-1], piece.text)
        else:
            piece.atom.tail = None
            parents[-1].append(piece.atom)
