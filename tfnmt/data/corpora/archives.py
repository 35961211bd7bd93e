"""Files inside archives: read one after the other, never unpacked to the disk."""

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

PROBLEMS = (
    tarfile.ReadError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError,
    RuntimeError,  # what zipfile says of a member that is encrypted, or packed as it cannot unpack
)  # fmt: skip
COMPRESSED = {b"\x1f\x8b": gzip.GzipFile, b"BZh": bz2.BZ2File, b"\xfd7zXZ": lzma.LZMAFile}
BUFFER = 1 << 16

Files = Generator[tuple[str, IO[bytes]], None, None]


def read_members(path: Path, names: Collection[str]) -> Iterator[tuple[str, IO[bytes]]]:
    """The members of these names, in the archive's order, each to be read before the next.

    The content tells what the archive is: a zip, a tar, compressed or not, or one compressed file,
    which stands for whatever single name is asked for. A member that is a .gz is given unpacked.
    Names are only compared and only regular files count, so no archive can reach outside itself.
    """
    wanted = {_plain(name): name for name in names}
    with _problems_told(path), closing(_files(path, list(wanted))) as files:
        for found, stream in files:
            if found not in wanted:
                continue
            with io.BufferedReader(_Member(path, stream), BUFFER) as member:
                yield wanted.pop(found), cast(IO[bytes], member)
            if not wanted:
                return
    if wanted:
        raise UserError(
            f"{path}: holds no {', '.join(wanted.values())}; "
            "the file is another one than expected; remove it and run again"
        )


class _Member(io.RawIOBase):
    """The bytes of a member; damage that shows while they are read is the user's error."""

    def __init__(self, path: Path, stream: IO[bytes]) -> None:
        self._path = path
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        with _problems_told(self._path):
            content = self._stream.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)


def _files(path: Path, names: list[str]) -> Files:
    """The regular files of an archive; what one compressed file holds has the only name."""
    with path.open("rb") as file:
        start = file.read(8)
    if start.startswith(b"PK"):
        yield from _in_zip(path)
        return
    # Not tarfile's own decompression ("r|*"): it takes a cut file for a short one, stops after the
    # first of several gzip streams, and compares no checksums.
    unpack = next((kind for magic, kind in COMPRESSED.items() if start.startswith(magic)), None)
    with cast(IO[bytes], unpack(path) if unpack else path.open("rb")) as content:
        if unpack is None or _begins_tar(content):
            yield from _in_tar(content)
        elif len(names) == 1:
            yield names[0], content
        # To the end, where a checksum tells damage from a file without what was asked for.
        while content.read(BUFFER):
            pass


def _in_zip(path: Path) -> Files:
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            kind = stat.S_IFMT(entry.external_attr >> 16)  # 0 where the archive was made on Windows
            if kind in (0, stat.S_IFREG) and not entry.is_dir():
                with archive.open(entry) as stream:
                    yield _plain(entry.filename), _unpacked(entry.filename, stream)


def _in_tar(content: IO[bytes]) -> Files:
    with tarfile.open(fileobj=content, mode="r|", bufsize=BUFFER) as archive:
        for entry in archive:
            stream = archive.extractfile(entry) if entry.isfile() else None
            if stream is not None:
                yield _plain(entry.name), _unpacked(entry.name, stream)


def _begins_tar(content: IO[bytes]) -> bool:
    """Whether a tar's first header stands there; leaves the stream at its start."""
    block = content.read(tarfile.BLOCKSIZE)
    content.seek(0)
    try:
        tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def _unpacked(name: str, stream: IO[bytes]) -> IO[bytes]:
    return cast(IO[bytes], gzip.GzipFile(fileobj=stream)) if name.endswith(".gz") else stream


def _plain(name: str) -> str:
    return name.removeprefix("./")


@contextmanager
def _problems_told(path: Path) -> Iterator[None]:
    """Turns what is wrong with an archive into the user's error."""
    try:
        yield
    except PROBLEMS as error:
        if isinstance(error, OSError) and error.strerror:
            raise UserError(f"{path}: {error.strerror}; an archive is expected there") from error
        reason = str(error) or type(error).__name__
        raise UserError(f"{path}: damaged ({reason}); remove it and run again") from error
