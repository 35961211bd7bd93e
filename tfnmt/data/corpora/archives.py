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
from typing import IO, cast

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

Files = Generator[tuple[str, IO[bytes]], None, None]


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
        UserError: The archive is damaged or lacks a member.
    """
    wanted = {_without_dot(name): name for name in names}
    with _report_read_errors(path), closing(_files(path, list(wanted))) as files:
        for found, stream in files:
            if found not in wanted:
                continue
            with io.BufferedReader(_Member(path, stream), BUFFER) as member:
                yield wanted.pop(found), cast(IO[bytes], member)
            if not wanted:
                return
    if wanted:
        raise UserError(
            f"{path}: contains no {', '.join(wanted.values())}, so it is not the expected archive; "
            "remove it and run again"
        )


class _Member(io.RawIOBase):
    """The bytes of a member. Damage found while reading becomes a UserError."""

    def __init__(self, path: Path, stream: IO[bytes]) -> None:
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
        if decompress is None or _starts_with_tar_header(content):
            yield from _in_tar(content)
        elif len(names) == 1:
            yield names[0], content
        # Read to the end, where a checksum distinguishes damage from a missing member.
        while content.read(BUFFER):
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
