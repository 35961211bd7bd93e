"""Parallel text in files: line N of one file translates line N of the other."""

import codecs
import gzip
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from itertools import zip_longest
from pathlib import Path

from tfnmt.errors import UsageError, UserError
from tfnmt.runtime.files import is_special

Pair = tuple[str, str]


def unpacked_name(path: Path) -> Path:
    """The path without its .gz, where it has one."""
    return path.with_suffix("") if path.suffix.lower() == ".gz" else path


@contextmanager
def open_bytes(path: Path) -> Iterator[BufferedIOBase]:
    """A file to read, unpacked on the way where its name ends in .gz; failures are UserErrors."""
    try:
        with path.open("rb") if unpacked_name(path) == path else gzip.open(path) as file:
            yield file
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        early = isinstance(error, EOFError)
        what = "the gzip data ends early" if early else "not gzip data, or damaged"
        raise UserError(f"{path}: {what}; download or compress it again") from error
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; expected UTF-8 text there") from error


def check_readable(path: Path) -> None:
    """Raises at once what reading would raise later; a pipe, which opens but once, is let be."""
    if not is_special(path):
        with open_bytes(path):
            pass


def check_output(output: str | None, source: str | None) -> None:
    """Refuses to write over what is read, and, as lines are, to a name that says packed."""
    if output is None:
        return
    if source and os.path.isfile(output) and os.path.samefile(output, source):
        raise UsageError(f"--output={output}: the --input, which would be lost; name another file")
    if unpacked_name(Path(output)) != Path(output):
        raise UsageError(
            f"--output={output}: what is written is not packed; leave --output out, and send it "
            f"through gzip > {output}"
        )


def read_lines(path: Path, errors: str = "strict") -> Iterator[str]:
    """The lines of a UTF-8 file without their ends; `errors` is as in `open`."""
    with open_bytes(path) as file:
        yield from decode_lines(file, str(path), errors)


def decode_lines(lines: Iterable[bytes], name: str, errors: str = "strict") -> Iterator[str]:
    r"""The lines of a binary stream as text without their ends; `name` is for messages.

    Only \n (or \r\n) ends a line: the other characters that Unicode calls line separators occur
    inside sentences, and would shift all that follows. A byte order mark is passed over.
    """
    for number, line in enumerate(lines, start=1):
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        try:
            yield line.decode("utf-8", errors).rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise UserError(
                f"{name}:{number}: not UTF-8 (byte {error.start + 1} of the line); convert the "
                "text, with iconv for instance"
            ) from error


def read_pairs(source: Path, target: Path, errors: str = "strict") -> Iterator[Pair]:
    """The pairs of two aligned files; raises when one of them is longer or both are empty."""
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
        raise UserError(f"{source}: no text in it; a sentence per line is expected")
