"""Files of translators: PO, XLIFF 1.2 and 2.0, and TMX. Existing translations are kept."""

import codecs
import re
from collections.abc import Callable, Iterator
from copy import deepcopy

from tfnmt.documents.detection import primary_language
from tfnmt.documents.segments import Document, text_segment
from tfnmt.documents.xml import (
    XML_LANG,
    Block,
    Element,
    Kind,
    check_blocks,
    is_translated,
    local_name,
    parse_xml,
    read_block,
    segments_of,
    write_xml,
)
from tfnmt.errors import UserError

AROUND_WORDS = ("g", "mrk", "pc", "hi")
"""Inline elements with text: of XLIFF 1.2, of 2.0 and of TMX. Others are codes of the file."""


MAX_PLURALS = 10
"""Maximum number of plural forms; no language has more than six."""


HEADER = re.compile(rb'^msgid ""\s*^msgstr((?:\s*"[^\n]*")+)', re.MULTILINE)
CHARSET = re.compile(rb"charset= *([^\s;\\]+)", re.IGNORECASE)
TEXT_CODEC = re.compile(
    r"ascii|utf-8|iso8859-\d+|cp(8\d\d|125\d|9\d\d)|koi8-[rtu]|tis-620"
    r"|big5|euc_(jp|kr)|gb(2312|k|18030)|johab|shift_jis"
)
"""Python's names for the encodings of gettext. It has others that are slow, or not for text."""


def read_po(content: bytes, name: str) -> Document:
    """Read a PO file. The entries without a translation get one.

    Raises:
        UserError: The file is damaged or translate-toolkit is not installed.
    """
    from translate.misc.multistring import multistring
    from translate.storage.pypo import pofile

    content = _in_utf_8(content, name)
    try:
        file = pofile.parsestring(content)
        units = [
            unit
            for unit in file.units
            if unit.source and not unit.isheader() and not unit.isobsolete()
            if not str(unit.target).strip()
        ]
        plurals = int(file.getheaderplural()[0] or 2)
    except Exception as error:  # the parser raises many kinds of errors for damaged files
        raise UserError(f"{name}: no valid PO file; check it with msgfmt") from error
    if _codec(file.encoding) != "utf-8":  # it was not found, such as in a second header
        raise _unknown_charset(file.encoding, name)
    if not 1 <= plurals <= MAX_PLURALS:
        raise UserError(f"{name}: nplurals={plurals} in its header; set 1 to {MAX_PLURALS}")
    segments = [[text_segment(str(text)) for text in _strings(unit.source)] for unit in units]

    def write() -> bytes:
        for unit, each in zip(units, segments, strict=True):
            texts = [segment.translated_text for segment in each]
            if unit.hasplural():
                texts = (texts + [texts[-1]] * plurals)[:plurals]
                unit.target = multistring(texts)
            else:
                unit.target = texts[0]
        return bytes(file)

    return Document([segment for each in segments for segment in each], write)


def _in_utf_8(content: bytes, name: str) -> bytes:
    """Return a PO file in UTF-8: the parser does not decode all other encodings."""
    header = HEADER.search(content)
    found = CHARSET.search(header[1]) if header else None
    charset = found[1].decode("latin-1") if found else "CHARSET"
    codec = _codec(charset)
    if codec is None:
        raise _unknown_charset(charset, name)
    if codec == "utf-8":
        return content
    try:
        text = content.decode(codec)
    except UnicodeDecodeError as error:
        raise UserError(
            f"{name}: not {charset}, as its header says; check it with msgfmt"
        ) from error
    return text.replace(f"charset={charset}", "charset=UTF-8", 1).encode()


def _codec(charset: str) -> str | None:
    """Return Python's name of an encoding of text, else None. CHARSET is that of a template."""
    try:
        codec = "utf-8" if charset == "CHARSET" else codecs.lookup(charset).name
    except LookupError:
        return None
    return codec if TEXT_CODEC.fullmatch(codec) else None


def _unknown_charset(charset: str, name: str) -> UserError:
    return UserError(f"{name}: charset={charset}; convert the file with msgconv -t UTF-8")


def _strings(text: object) -> list[str]:
    """Return the singular and the plural of a text."""
    return [str(each) for each in getattr(text, "strings", [text])]


def read_xliff(content: bytes, name: str, target: str) -> Document:
    """Read an XLIFF file of version 1.2 or 2.0.

    Args:
        content: The file.
        name: Its name in messages.
        target: The language of the translation.

    Raises:
        UserError: The file is damaged or not XLIFF.
    """
    tree = parse_xml(content, name)
    root = tree.getroot()
    if local_name(root) != "xliff":
        raise UserError(f"{name}: no XLIFF file; check the suffix of the name")
    if root.get("version", "").startswith("2"):
        root.set("trgLang", target)
        units = [unit for unit in _named(root, "unit") if is_translated(unit)]
        parents = [segment for unit in units for segment in _named(unit, "segment")]
    else:
        for file in _named(root, "file"):
            file.set("target-language", target)
        parents = [unit for unit in _named(root, "trans-unit") if is_translated(unit)]
    blocks = [
        read_block(each, _code_kind) for parent in parents for each in _target(parent, target)
    ]
    return _document(blocks, name, lambda: write_xml(tree))


def _target(parent: Element, language: str) -> Iterator[Element]:
    """Yield the target of a unit with the content of the source, unless it has a translation."""
    source = next(_children(parent, "source"), None)
    target = next(_children(parent, "target"), None)
    if source is None or (target is not None and "".join(target.itertext()).strip()):
        return
    if target is not None:
        parent.remove(target)
    place = next(_children(parent, "seg-source"), source)
    target = deepcopy(source)
    target.tag = str(source.tag).replace("source", "target")
    if XML_LANG in target.attrib:
        target.set(XML_LANG, language)
    tail, place.tail = place.tail, None  # otherwise it would follow the target
    target.tail = tail
    place.addnext(target)
    place.tail = tail
    yield target


def read_tmx(content: bytes, name: str, source: str, target: str) -> Document:
    """Read a translation memory. The units with the source language get the target language.

    Args:
        content: The file.
        name: Its name in messages.
        source: The language of the text; empty for the one that the header names.
        target: The language of the translation.

    Raises:
        UserError: The file is damaged, or no unit has the source language.
    """
    tree = parse_xml(content, name)
    if local_name(tree.getroot()) != "tmx":
        raise UserError(f"{name}: no TMX file; check the suffix of the name")
    source = source or _header_language(tree.getroot())
    primary = primary_language(source)
    blocks: list[Block] = []
    found = False
    for unit in _named(tree.getroot(), "tu"):
        variants = {_language(variant): variant for variant in _children(unit, "tuv")}
        if primary not in variants:
            continue
        found = True
        if primary_language(target) not in variants:
            variant = deepcopy(variants[primary])
            variant.attrib.pop("lang", None)
            variant.set(XML_LANG, target)
            unit.append(variant)
            blocks += [read_block(text, _code_kind) for text in _children(variant, "seg")]
    if not found:
        raise UserError(f"{name}: has no text of the language {source}; name another source")
    return _document(blocks, name, lambda: write_xml(tree))


def _header_language(root: Element) -> str:
    """Return the language of the source text according to the header, without its region."""
    headers = _named(root, "header")
    return primary_language(headers[0].get("srclang") or "") if headers else ""


def _language(variant: Element) -> str:
    """Return the language of a variant without its region."""
    return primary_language(variant.get(XML_LANG) or variant.get("lang") or "")


def _document(blocks: list[Block], name: str, finish: Callable[[], bytes]) -> Document:
    check_blocks(blocks, name)

    def write() -> bytes:
        for block in blocks:
            block.write()
        return finish()

    return Document(segments_of(blocks), write)


def _code_kind(element: Element) -> Kind:
    excluded = element.get("translate") == "no" or element.get("mtype") == "protected"
    return "inline" if local_name(element) in AROUND_WORDS and not excluded else "object"


def _named(root: Element, name: str) -> list[Element]:
    return [element for element in root.iter() if local_name(element) == name]


def _children(parent: Element, name: str) -> Iterator[Element]:
    return (child for child in list(parent) if local_name(child) == name)
