"""ZIP archives that office programs and electronic books are stored in."""

import io
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from tfnmt.errors import UserError

ENCRYPTED_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
"""The first bytes of an office file with a password, and of formats before 2007."""

ENCRYPTED_FLAG = 0x1

COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""The only compressions of office files and electronic books."""

DAMAGED = (zlib.error, EOFError, ValueError, RuntimeError, struct.error)
"""Errors of `zipfile` for damaged files, apart from its own."""


@dataclass(frozen=True)
class Limits:
    """Limits of a document.

    Attributes:
        bytes: Maximum size.
        unpacked_bytes: Maximum size of all files in an archive.
        files: Maximum number of files in an archive.
        characters: Maximum number of characters to translate.
    """

    bytes: int = 20_000_000
    unpacked_bytes: int = 200_000_000
    files: int = 5_000
    characters: int = 5_000_000

    def check_characters(self, characters: int, name: str) -> None:
        """Raise a UserError if a document has too many characters to translate."""
        if characters > self.characters:
            raise UserError(
                f"{name}: {characters} characters of text; the limit is {self.characters}"
            )


class Archive:
    """An archive in memory whose files can be replaced."""

    def __init__(self, content: bytes, name: str, limits: Limits) -> None:
        """Check an archive, without unpacking it.

        Args:
            content: The archive.
            name: Its name in messages.
            limits: Its limits.

        Raises:
            UserError: The archive is damaged, encrypted or too large.
        """
        self._name = name
        self._limits = limits
        if content.startswith(ENCRYPTED_OLE):
            raise UserError(
                f"{name}: has a password, or a format from before 2007; save it in the current "
                "format without a password"
            )
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(content))
        except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError) as error:
            raise UserError(f"{name}: damaged or of another format; save it again") from error
        self._entries = self._zip.infolist()
        self._read = 0
        if len(self._entries) > limits.files:
            raise UserError(
                f"{name}: {len(self._entries)} files inside; the limit is {limits.files}"
            )
        self._check_size(sum(entry.file_size for entry in self._entries))
        if any(entry.flag_bits & ENCRYPTED_FLAG for entry in self._entries):
            raise UserError(f"{name}: encrypted; save it without a password")
        if any(entry.compress_type not in COMPRESSIONS for entry in self._entries):
            raise UserError(f"{name}: compressed in an unusual way; save it again")
        if len(set(self.names)) < len(self._entries):
            raise UserError(f"{name}: two files inside have the same name; save it again")

    @property
    def names(self) -> list[str]:
        """The names of the files inside."""
        return [entry.filename for entry in self._entries]

    def read(self, name: str) -> bytes:
        """Return a file.

        Raises:
            UserError: The file is missing or damaged, or larger than the archive states.
        """
        try:
            with self._zip.open(name) as file:
                room = self._limits.unpacked_bytes - self._read
                content = file.read(room + 1)
        except (zipfile.BadZipFile, KeyError, NotImplementedError, OSError, *DAMAGED) as error:
            raise UserError(f"{self._name}: {name} is missing or damaged; save it again") from error
        self._read += len(content)
        self._check_size(self._read)
        return content

    def replace(self, contents: Mapping[str, bytes]) -> bytes:
        """Return the archive with other contents of some files, in the same order."""
        output = io.BytesIO()
        self._read = 0
        with zipfile.ZipFile(output, "w") as target:
            for entry in self._entries:
                copy = zipfile.ZipInfo(entry.filename, entry.date_time)
                copy.compress_type = entry.compress_type
                copy.external_attr = entry.external_attr
                content = contents.get(entry.filename)
                target.writestr(copy, self.read(entry.filename) if content is None else content)
        return output.getvalue()

    def _check_size(self, size: int) -> None:
        limit = self._limits.unpacked_bytes
        if size > limit:
            raise UserError(f"{self._name}: larger than {limit} bytes unpacked; divide it")
