"""Reading text files: UTF-8 lines, compressed or not, and pairs of aligned files."""

import codecs
import gzip
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from itertools import zip_longest
from pathlib import Path

from tfnmt.errors import UserError
from tfnmt.runtime.files import is_stream

Pair = tuple[str, str]

BINARY = (b"%PDF-", b"{\\rtf", b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
"""The first bytes of files that are no text: PDF, RTF, zip (and office) files, old office files."""


def decompressed_name(path: Path) -> Path:
    """Return the path without its .gz, if it has one."""
    return path.with_suffix("") if path.suffix.lower() == ".gz" else path


@contextmanager
def open_bytes(path: Path) -> Iterator[BufferedIOBase]:
    """Open a file for reading and decompress a .gz. Failures become UserErrors."""
    try:
        with path.open("rb") if decompressed_name(path) == path else gzip.open(path) as file:
            yield file
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        early = isinstance(error, EOFError)
        what = "the gzip data ends early" if early else "not gzip data, or damaged"
        raise UserError(f"{path}: {what}; download or compress it again") from error
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"{path}: {reason}; give the path of a readable file") from error


def check_readable(path: Path) -> None:
    """Raise the error that reading would raise later. A stream can be opened only once: skip it."""
    if not is_stream(path):
        with open_bytes(path):
            pass


def read_lines(path: Path, errors: str = "strict") -> Iterator[str]:
    """Yield the lines of a UTF-8 file without line ends; `errors` as in `open`."""
    with open_bytes(path) as file:
        yield from decode_lines(file, str(path), errors)


def decode_lines(
    lines: Iterable[bytes], name: str, errors: str = "strict", first: int = 1
) -> Iterator[str]:
    r"""Decode the lines of a binary stream and remove their ends.

    Only \n (or \r\n) ends a line. Other Unicode line separators occur inside sentences and would
    shift all following lines. A byte order mark is skipped.

    Args:
        lines: Lines as bytes.
        name: The name of the stream, for messages.
        errors: The treatment of bytes that are not UTF-8, as in `open`.
        first: The number of the first line in its file.
    """
    for number, line in enumerate(lines, start=first):
        if number == 1:
            _check_first_line(line, name)
            line = line.removeprefix(codecs.BOM_UTF8)
        try:
            yield line.decode("utf-8", errors).rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise UserError(
                f"{name}:{number}: not UTF-8 (byte {error.start + 1} of the line); convert the "
                "text, for example with iconv"
            ) from error


def _check_first_line(line: bytes, name: str) -> None:
    """Raise a UserError for a binary file, UTF-16, or lines that end with carriage returns only."""
    if line.startswith(BINARY):
        raise UserError(f"{name}: a PDF, RTF, zip or old Office file; convert it to plain text")
    # English UTF-16 text is valid UTF-8, in which every second byte is NUL.
    nuls = line.count(0)
    if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or 1 < nuls > len(line) // 3:
        raise UserError(
            f"{name}: UTF-16; convert the text to UTF-8, for example with iconv -f UTF-16 -t UTF-8"
        )
    if not line.endswith(b"\n") and b"\r" in line.rstrip(b"\r"):
        raise UserError(
            f"{name}: ends lines with carriage returns; convert them, for example with "
            r"tr '\r' '\n'"
        )


def read_pairs(source: Path, target: Path, errors: str = "strict") -> Iterator[Pair]:
    """Yield the pairs of two aligned files. Raise a UserError if their lengths differ or are 0."""
    sources, targets = read_lines(source, errors), read_lines(target, errors)
    count = 0
    for source_line, target_line in zip_longest(sources, targets):
        if source_line is None or target_line is None:
            longer = 1 + count + sum(1 for _ in (targets if source_line is None else sources))
            lengths = (count, longer) if source_line is None else (longer, count)
            raise UserError(
                f"{source}: {lengths[0]:,} lines, but {target} has {lengths[1]:,}; "
                "line N of one must translate line N of the other"
            )
        yield source_line, target_line
        count += 1
    if count == 0:
        raise UserError(f"{source}: empty; write one sentence per line")
