"""Electronic books: the XHTML pages and the table of contents of an EPUB."""

from collections.abc import Iterator
from typing import NamedTuple

from tfnmt.documents.archive import Archive, Limits
from tfnmt.documents.html import BLOCKS, CODE, FOREIGN, OPAQUE, TRANSLATED_ATTRIBUTES
from tfnmt.documents.segments import Document, Segment, text_segment
from tfnmt.documents.xml import (
    Block,
    Element,
    Kind,
    Tree,
    check_blocks,
    collapse_space,
    is_translated,
    local_name,
    parse_xml,
    read_block,
    segments_of,
    write_xml,
)
from tfnmt.errors import UserError

CONTAINER = "META-INF/container.xml"
ENCRYPTION = "META-INF/encryption.xml"
PAGES = (".xhtml", ".html", ".htm")
CONTENTS = ".ncx"


class _Attribute(NamedTuple):
    """An attribute that people read."""

    element: Element
    name: str
    segment: Segment

    def write(self) -> None:
        self.element.set(self.name, self.segment.translated_text)


def read_epub(content: bytes, name: str, limits: Limits) -> Document:
    """Read the pages of a book.

    Args:
        content: The file.
        name: Its name in messages.
        limits: Its limits.

    Raises:
        UserError: The file is damaged, encrypted or too large.
    """
    archive = Archive(content, name, limits)
    if CONTAINER not in archive.names:
        raise UserError(f"{name}: no electronic book; check the suffix of the name")
    parts = [part for part in archive.names if part.lower().endswith((*PAGES, CONTENTS))]
    if ENCRYPTION in archive.names:
        _check_encryption(parse_xml(archive.read(ENCRYPTION), f"{name}: {ENCRYPTION}"), parts, name)
    trees = {part: parse_xml(archive.read(part), f"{name}: {part}") for part in parts}
    blocks: list[Block] = []
    attributes: list[_Attribute] = []
    for part, tree in trees.items():
        if part.lower().endswith(CONTENTS):
            blocks += [read_block(text, lambda _: "object") for text in _named(tree, "text")]
        else:
            blocks += _page_blocks(tree.getroot())
            attributes += _attributes(tree)

    check_blocks(blocks, name)

    def write() -> bytes:
        for attribute in attributes:  # before the blocks, which copy elements
            attribute.write()
        for block in blocks:
            block.write()
        return archive.replace({part: write_xml(tree) for part, tree in trees.items()})

    segments = segments_of(blocks) + [attribute.segment for attribute in attributes]
    return Document(segments, write)


def _check_encryption(tree: Tree, parts: list[str], name: str) -> None:
    """Refuse a book with encrypted pages. Fonts are often encrypted."""
    encrypted = {reference.get("URI") for reference in _named(tree, "CipherReference")}
    if encrypted & set(parts):
        raise UserError(f"{name}: protected against copying; use a book without protection")


def _named(tree: Tree, name: str) -> Iterator[Element]:
    return (element for element in list(tree.iter()) if local_name(element) == name)


def _page_blocks(element: Element) -> Iterator[Block]:
    """Yield an element and the blocks inside, without those that are not translated."""
    if not is_translated(element) or local_name(element) in OPAQUE:
        return
    block = collapse_space(read_block(element, _kind))
    yield block
    for item in block.items:
        if not isinstance(item, Segment):
            yield from _page_blocks(item)


def _kind(element: Element) -> Kind:
    name = local_name(element)
    if name == "br":
        return "break"
    if name in FOREIGN:
        return "object"
    if any(local_name(each) in BLOCKS for each in element.iter()):
        return "block"
    opaque = name in OPAQUE or name in CODE or not is_translated(element)
    return "object" if opaque else "inline"


def _attributes(tree: Tree) -> Iterator[_Attribute]:
    for element in tree.iter("{*}*"):
        if local_name(element) not in OPAQUE and is_translated(element):
            for name in TRANSLATED_ATTRIBUTES:
                if (value := element.get(name, "")).strip():
                    yield _Attribute(element, name, text_segment(value))
