"""The formats of documents by the suffix of their names."""

from collections.abc import Callable
from pathlib import PurePath
from typing import NamedTuple

from tfnmt.documents.archive import Limits
from tfnmt.documents.segments import Document
from tfnmt.errors import UserError


class Languages(NamedTuple):
    """The languages of a document and of its translation."""

    source: str
    target: str


Read = Callable[[bytes, str, Limits, Languages], Document]
"""Reads a format. It imports the packages that the format needs."""


def _text(content: bytes, name: str, limits: Limits, languages: Languages) -> Document:
    from tfnmt.documents.plain import read_text

    return read_text(content, name, limits)


def _subtitles(content: bytes, name: str, limits: Limits, languages: Languages) -> Document:
    from tfnmt.documents.plain import read_subtitles

    return read_subtitles(content, name, limits)


def _markdown(content: bytes, name: str, limits: Limits, languages: Languages) -> Document:
    from tfnmt.documents.markdown import read_markdown

    return read_markdown(content, name, limits)


def _html(content: bytes, name: str, limits: Limits, languages: Languages) -> Document:
    from tfnmt.documents.html import read_html
    from tfnmt.documents.plain import decode

    return read_html(decode(content, name))


def _docx(content: bytes, name: str, limits: Limits, languages: Languages) -> Document:
    from tfnmt.documents.office import read_docx

    return read_docx(content, name, limits)


def _pptx(content: bytes, name: str, limits: Limits, languages: Languages) -> Document:
    from tfnmt.documents.office import read_pptx

    return read_pptx(content, name, limits)


def _opendocument(content: bytes, name: str, limits: Limits, languages: Languages) -> Document:
    from tfnmt.documents.office import read_opendocument

    return read_opendocument(content, name, limits)


def _epub(content: bytes, name: str, limits: Limits, languages: Languages) -> Document:
    from tfnmt.documents.epub import read_epub

    return read_epub(content, name, limits)


def _po(content: bytes, name: str, limits: Limits, languages: Languages) -> Document:
    from tfnmt.documents.bilingual import read_po

    return read_po(content, name)


def _xliff(content: bytes, name: str, limits: Limits, languages: Languages) -> Document:
    from tfnmt.documents.bilingual import read_xliff

    return read_xliff(content, name, languages.target)


def _tmx(content: bytes, name: str, limits: Limits, languages: Languages) -> Document:
    from tfnmt.documents.bilingual import read_tmx

    return read_tmx(content, name, languages.source, languages.target)


FORMATS: dict[str, Read] = {
    ".txt": _text,
    ".md": _markdown,
    ".html": _html,
    ".htm": _html,
    ".docx": _docx,
    ".pptx": _pptx,
    ".odt": _opendocument,
    ".odp": _opendocument,
    ".epub": _epub,
    ".srt": _subtitles,
    ".vtt": _subtitles,
    ".po": _po,
    ".xlf": _xliff,
    ".xliff": _xliff,
    ".tmx": _tmx,
}


def suffix_of(name: str) -> str:
    """Return the suffix of a file name in lower case."""
    return PurePath(name).suffix.lower()


def read_document(content: bytes, name: str, limits: Limits, languages: Languages) -> Document:
    """Read a document.

    Args:
        content: The file.
        name: Its name. The suffix selects the format.
        limits: The limits.
        languages: The languages of the document and of its translation.

    Raises:
        UserError: The format is unknown, the file is damaged, encrypted or too large, or a package
            is not installed.
    """
    read = FORMATS.get(suffix_of(name))
    if read is None:
        raise UserError(f"{name}: unknown format; use one of {' '.join(FORMATS)}")
    if len(content) > limits.bytes:
        raise UserError(f"{name}: larger than {limits.bytes} bytes; divide it")
    try:
        document = read(content, name, limits, languages)
    except ImportError as error:
        raise UserError(
            f"{name}: needs the package {error.name}; install tfnmt[documents]"
        ) from error
    except RecursionError as error:
        raise UserError(f"{name}: nested too deeply; simplify it") from error
    limits.check_characters(sum(len(segment.text) for segment in document.segments), name)
    return document
