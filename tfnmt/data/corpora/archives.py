"""Reading the members of archives one after the other, without unpacking them to disk."""

import bz2
import gzip
import io
import lzma
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Collection, Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Protocol, cast

from tfnmt.errors import UserError

READ_ERRORS = (
    tarfile.ReadError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    OSError,
    RuntimeError,  # zipfile, for an encrypted member or an unknown compression
)
COMPRESSED = {b"\x1f\x8b": gzip.GzipFile, b"BZh": bz2.BZ2File, b"\xfd7zXZ": lzma.LZMAFile}
BUFFER = 1 << 16
MAX_RATIO = 30
"""Maximum size of unpacked text divided by that of its archive. Text is compressed to a third, and
a table with repeated columns to a tenth."""
MIN_LIMIT = 64_000_000
"""Bytes that any archive may unpack to."""

Files = Generator[tuple[str, IO[bytes]], None, None]


class Readable(Protocol):
    """A binary stream."""

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes, and none only at the end."""


def read_members(path: Path, names: Collection[str]) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the named members in the order of the archive. Read each one before the next.

    The content decides the format: zip, tar (compressed or not), or a single compressed file, which
    stands for the only requested name. A member that ends in .gz is decompressed. Names are only
    compared and only regular files count, so an archive cannot reach outside itself.

    Args:
        path: The archive.
        names: The names of the members.

    Yields:
        Name and content of a member.

    Raises:
        UserError: The archive is damaged, lacks a member, or unpacks to far more than its size.
    """
    wanted = {_without_dot(name): name for name in names}
    with _report_read_errors(path), closing(_files(path, list(wanted))) as files:
        limit = unpacked_limit(path, MAX_RATIO)
        for found, stream in files:
            if found not in wanted:
                continue
            with io.BufferedReader(_Member(path, LimitedReader(stream, limit)), BUFFER) as member:
                yield wanted.pop(found), cast(IO[bytes], member)
            if not wanted:
                return
    if wanted:
        raise UserError(
            f"{path}: contains no {', '.join(wanted.values())}, so it is not the expected archive; "
            "remove it and run again"
        )


def unpacked_limit(archive: Path, ratio: float) -> int:
    """Return the number of bytes that an archive may unpack to, at most `ratio` times its size."""
    return max(MIN_LIMIT, round(ratio * archive.stat().st_size))


class LimitedReader:
    """A stream with a limit, so that no small archive fills the disk or the memory."""

    def __init__(self, stream: Readable, limit: int) -> None:
        self._stream = stream
        self._limit = limit
        self._left = limit

    def read(self, size: int) -> bytes:
        """Return the next bytes.

        Raises:
            tarfile.ReadError: The stream has more bytes than its limit.
        """
        content = self._stream.read(size)
        self._left -= len(content)
        if self._left < 0:
            raise tarfile.ReadError(f"unpacks to more than {self._limit:,} bytes")
        return content


class _Member(io.RawIOBase):
    """The bytes of a member. Damage found while reading becomes a UserError."""

    def __init__(self, path: Path, stream: Readable) -> None:
        self._path = path
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        with _report_read_errors(self._path):
            content = self._stream.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)


def _files(path: Path, names: list[str]) -> Files:
    """Yield the regular files of an archive. A single compressed file gets the only name."""
    with path.open("rb") as file:
        start = file.read(8)
    if start.startswith(b"PK"):
        yield from _in_zip(path)
        return
    # Not tarfile's own decompression ("r|*"): it accepts a truncated file, stops after the first of
    # several gzip streams, and compares no checksums.
    decompress = next((kind for magic, kind in COMPRESSED.items() if start.startswith(magic)), None)
    with cast(IO[bytes], decompress(path) if decompress else path.open("rb")) as content:
        is_tar = decompress is None or _starts_with_tar_header(content)
        limited = cast(IO[bytes], LimitedReader(content, unpacked_limit(path, MAX_RATIO)))
        if is_tar:
            yield from _in_tar(limited)
        elif len(names) == 1:
            yield names[0], limited
        # Read to the end, where a checksum distinguishes damage from a missing member.
        while limited.read(BUFFER):
            pass


def _in_zip(path: Path) -> Files:
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            kind = stat.S_IFMT(entry.external_attr >> 16)  # 0 in archives made on Windows
            if kind in (0, stat.S_IFREG) and not entry.is_dir():
                with archive.open(entry) as stream:
                    yield _without_dot(entry.filename), _decompressed(entry.filename, stream)


def _in_tar(content: IO[bytes]) -> Files:
    with tarfile.open(fileobj=content, mode="r|", bufsize=BUFFER) as archive:
        for entry in archive:
            stream = archive.extractfile(entry) if entry.isfile() else None
            if stream is not None:
                yield _without_dot(entry.name), _decompressed(entry.name, stream)


def _starts_with_tar_header(content: IO[bytes]) -> bool:
    """Return whether the stream starts with a tar header. Leaves it at its start."""
    block = content.read(tarfile.BLOCKSIZE)
    content.seek(0)
    try:
        tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def _decompressed(name: str, stream: IO[bytes]) -> IO[bytes]:
    return cast(IO[bytes], gzip.GzipFile(fileobj=stream)) if name.endswith(".gz") else stream


def _without_dot(name: str) -> str:
    return name.removeprefix("./")


@contextmanager
def _report_read_errors(path: Path) -> Iterator[None]:
    """Convert errors of reading an archive into a one-line UserError."""
    try:
        yield
    except READ_ERRORS as error:
        if isinstance(error, OSError) and error.strerror:
            raise UserError(f"{path}: {error.strerror}; put the archive there") from error
        reason = str(error) or type(error).__name__
        raise UserError(f"{path}: damaged ({reason}); remove it and run again") from error
