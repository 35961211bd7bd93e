"""Office documents: docx, pptx, odt and odp. Each run of text keeps its style.

A run of a docx or a pptx is a piece of text with its properties. Runs with equal properties are one
mark. In an odt or odp, spans are elements around words, as in HTML.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from fnmatch import fnmatchcase

from lxml import etree

from tfnmt.documents.archive import Archive, Limits
from tfnmt.documents.segments import Document, Marks, Piece, Segment, merged
from tfnmt.documents.xml import (
    XML_SPACE,
    Block,
    Element,
    Inline,
    Kind,
    Tree,
    check_blocks,
    collapse_space,
    local_name,
    parse_xml,
    read_block,
    segments_of,
    write_pieces,
    write_xml,
)
from tfnmt.errors import UserError

WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
DRAWING = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
CONTENT = f"{WORD}sdtContent"
"""The element with the content of a content control."""
TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"

DOCX_PARTS = (
    "word/document*.xml",  # some programs number it
    "word/header*.xml",
    "word/footer*.xml",
    "word/footnotes*.xml",
    "word/endnotes*.xml",
    "word/comments.xml",
)
PPTX_PARTS = ("ppt/slides/slide*.xml", "ppt/notesSlides/notesSlide*.xml")
ODF_PARTS = ("content.xml", "styles.xml")

PROPERTIES = ("pPr", "endParaRPr")
"""Children of a paragraph that stay in their place."""

WRAPPERS = ("hyperlink", "ins", "moveTo", "smartTag")
"""Elements of a docx around runs."""

CHOSEN = ("checkbox", "citation", "comboBox", "date", "dropDownList", "equation", "picture")
"""Properties of content controls of a docx whose content is chosen or computed, not written."""

BREAKS = ("br", "cr", "tab", "ptab")
DROPPED = ("proofErr", "lastRenderedPageBreak", "softHyphen")
"""Elements that are wrong after a translation: marks of the spelling checker and of pages."""

MAX_COPIED_PROPERTIES = 2_000_000
"""Maximum copies of properties of runs in a part of a document. Long ones count several times."""

UNSTYLED = ("lang", "noProof")
UNSTYLED_ATTRIBUTES = ("lang", "altLang", "dirty", "err", "smtClean", "noProof", "bmk")
"""Properties of a run that are no style."""


@dataclass(frozen=True)
class Style:
    """The mark of runs with the same properties."""

    key: bytes
    tag: str
    properties: tuple[Element, ...]  # none or one

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Style) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def open(self, parent: Element, again: bool) -> Element:
        """Append a run without text."""
        run = etree.SubElement(parent, self.tag)
        run.extend(deepcopy(each) for each in self.properties)
        return run


@dataclass(frozen=True)
class Control:
    """The mark of a content control of a docx. Each control is a mark of its own."""

    element: Element

    def open(self, parent: Element, again: bool) -> Element:
        """Append a copy without content; return the element for it. Only the first has its id."""
        control = etree.SubElement(parent, self.element.tag)
        control.extend(deepcopy(child) for child in self.element if child.tag != CONTENT)
        if again:
            for properties in control:
                for number in properties.findall(f"{WORD}id"):
                    properties.remove(number)
        return etree.SubElement(control, CONTENT)


def read_docx(content: bytes, name: str, limits: Limits) -> Document:
    """Read a Word document: its text, headers, footers, notes and comments."""
    return _read(content, name, limits, DOCX_PARTS, lambda tree: _paragraphs(tree, WORD))


def read_pptx(content: bytes, name: str, limits: Limits) -> Document:
    """Read the slides of a presentation and their notes."""
    return _read(content, name, limits, PPTX_PARTS, lambda tree: _paragraphs(tree, DRAWING))


def read_opendocument(content: bytes, name: str, limits: Limits) -> Document:
    """Read a text document or a presentation of LibreOffice."""
    return _read(content, name, limits, ODF_PARTS, _odf_blocks)


ReadBlocks = Callable[[Tree], Sequence[Block]]


def _read(
    content: bytes, name: str, limits: Limits, patterns: Sequence[str], read_blocks: ReadBlocks
) -> Document:
    archive = Archive(content, name, limits)
    if not any(fnmatchcase(part, patterns[0]) for part in archive.names):
        raise UserError(f"{name}: has no text of this format; check the suffix of the name")
    parts = [
        part for part in archive.names if any(fnmatchcase(part, pattern) for pattern in patterns)
    ]
    trees = {part: parse_xml(archive.read(part), f"{name}: {part}") for part in parts}
    for part, tree in trees.items():
        _check_runs(tree, f"{name}: {part}")
    blocks = [block for tree in trees.values() for block in read_blocks(tree)]
    check_blocks(blocks, name)

    def write() -> bytes:
        for block in blocks:
            block.write()
        return archive.replace({part: write_xml(tree) for part, tree in trees.items()})

    return Document(segments_of(blocks), write)


# --- Runs -----------------------------------------------------------------------------------------


def _check_runs(tree: Tree, name: str) -> None:
    """Refuse runs whose properties would be copied too often: once for each child of the run."""
    copied = 0
    for properties in tree.iter("{*}rPr"):
        run = properties.getparent()
        if run is not None:
            copied += len(run) * sum(map(_weight, properties.iter()))
        if copied > MAX_COPIED_PROPERTIES:
            raise UserError(f"{name}: runs with too many properties; remove some")


def _weight(element: Element) -> int:
    """Return the memory of an element without children, in units of an element without text."""
    return 1 + sum(len(text or "") for text in (element.text, *element.values())) // 100


class _Paragraph(Block):
    """A paragraph of runs."""

    def write(self) -> None:
        """Replace the runs by those of the translation."""
        element = self.element
        first = [child for child in element if local_name(child) == "pPr"]
        last = [child for child in element if local_name(child) == "endParaRPr"]
        for child in list(element):
            element.remove(child)
        element.extend(first)
        for item in self.items:
            if isinstance(item, Segment):
                write_pieces(element, _in_runs(item.translation), _append_to_run)
        element.extend(last)


def _paragraphs(tree: Tree, namespace: str) -> list[Block]:
    """Return the paragraphs with text. Those in a text box are inside another one."""
    with_text = _ancestors_of_text(tree, namespace)
    return [
        _Paragraph(paragraph, [Segment(list(_pieces(paragraph, (), namespace, with_text)))])
        for paragraph in tree.iter(f"{namespace}p")
        if paragraph in with_text
    ]


def _ancestors_of_text(tree: Tree, namespace: str) -> set[Element]:
    """Return the elements that contain text, in one pass over the tree."""
    found: set[Element] = set()
    for text in tree.iter(f"{namespace}t"):
        if (text.text or "").strip():
            for ancestor in text.iterancestors():
                if ancestor in found:
                    break
                found.add(ancestor)
    return found


def _pieces(
    parent: Element, marks: Marks, namespace: str, with_text: Collection[Element]
) -> Iterator[Piece]:
    fields = _fields(parent)
    for child in list(parent):
        name = local_name(child)
        if name in PROPERTIES or name in DROPPED:
            continue
        if child.tag == f"{namespace}r" and child not in fields:
            yield from _run(child, marks, namespace)
        elif name in WRAPPERS and str(child.tag).startswith(namespace):
            yield from _pieces(child, (*marks, Inline(child)), namespace, with_text)
        elif (content := _written_content(child)) is not None and content in with_text:
            yield from _pieces(content, (*marks, Control(child)), namespace, with_text)
        else:
            yield Piece("\n" if name in BREAKS else "", marks, child)


def _written_content(element: Element) -> Element | None:
    """Return the content of a content control whose text is written; None for others."""
    content = element.find(CONTENT)
    properties = element.iterfind(f"{WORD}sdtPr/*")
    return None if any(local_name(each) in CHOSEN for each in properties) else content


def _run(run: Element, marks: Marks, namespace: str) -> Iterator[Piece]:
    """Yield the texts of a run, and each other child in a run of its own."""
    properties = [child for child in run if local_name(child) == "rPr"]
    style = Style(_style_key(properties), str(run.tag), tuple(properties))
    for child in list(run):
        name = local_name(child)
        if name == "t":
            yield Piece(child.text or "", (*marks, style))
        elif name == "noBreakHyphen":
            yield Piece("\u2011", (*marks, style))
        elif name != "rPr" and name not in DROPPED:
            own_run = etree.Element(run.tag, nsmap=run.nsmap)
            own_run.extend(deepcopy(each) for each in properties)
            own_run.append(child)
            yield Piece("\n" if name in BREAKS else "", marks, own_run)


def _style_key(properties: Iterable[Element]) -> bytes:
    """Return a key that is the same for properties that look the same."""
    key = b""
    for each in properties:
        plain = deepcopy(each)
        for child in list(plain):
            if local_name(child) in UNSTYLED:
                plain.remove(child)
        for name in UNSTYLED_ATTRIBUTES:
            plain.attrib.pop(name, None)
        if len(plain) or plain.attrib:
            key += etree.tostring(plain, method="c14n")
    return key


def _fields(parent: Element) -> set[Element]:
    """Return the runs of fields such as page numbers, which are computed. Links are text."""
    runs: set[Element] = set()
    open_runs: list[Element] = []
    depth = 0
    for child in parent:
        kinds = [
            value
            for run in _runs(child)
            for field in run.iterchildren(f"{WORD}fldChar")
            if (value := field.get(f"{WORD}fldCharType"))
        ]
        depth += kinds.count("begin")
        if depth:
            open_runs.append(child)
        depth = max(0, depth - kinds.count("end"))  # a field may begin in an earlier paragraph
        if open_runs and depth == 0:
            codes = "".join(
                code.text or ""
                for each in open_runs
                for run in _runs(each)
                for code in run.iterchildren(f"{WORD}instrText")
            )
            if not codes.strip().upper().startswith("HYPERLINK"):
                runs.update(open_runs)
            open_runs = []
    return runs


def _runs(element: Element) -> Iterator[Element]:
    """Yield a run, or the runs of an element around some."""
    if element.tag == f"{WORD}r":
        yield element
    elif local_name(element) in (*WRAPPERS, "sdt", "sdtContent"):
        for child in element:
            yield from _runs(child)


def _in_runs(pieces: Sequence[Piece]) -> list[Piece]:
    """Give text between two runs the marks of a run next to it."""
    result: list[Piece] = []
    styled = [piece.marks for piece in pieces if _is_styled(piece)]
    marks = styled[0] if styled else ()
    for piece in pieces:
        if _is_styled(piece):
            marks = piece.marks
        result.append(piece if piece.atom is not None else piece._replace(marks=marks))
    return merged(result)


def _is_styled(piece: Piece) -> bool:
    return bool(piece.marks) and isinstance(piece.marks[-1], Style)


def _append_to_run(run: Element, text: str) -> None:
    namespace = str(run.tag).partition("}")[0] + "}"
    element = etree.SubElement(run, f"{namespace}t")
    element.text = text
    if namespace == WORD:
        element.set(XML_SPACE, "preserve")


# --- OpenDocument ---------------------------------------------------------------------------------


def _odf_blocks(tree: Tree) -> list[Block]:
    return [
        collapse_space(read_block(element, _odf_kind))
        for element in list(tree.iter(f"{TEXT}p", f"{TEXT}h"))
    ]


def _odf_kind(element: Element) -> Kind:
    if element.tag in (f"{TEXT}span", f"{TEXT}a"):
        return "inline"
    if element.tag == f"{TEXT}s":
        return "space"
    return "break" if element.tag in (f"{TEXT}tab", f"{TEXT}line-break") else "object"
