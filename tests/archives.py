"""Archives with given members, for tests of everything that reads archives."""

import io
import tarfile
import zipfile
from collections.abc import Mapping

Members = Mapping[str, str | bytes]
"""The content of each member by its name."""


def make_tar(members: Members, compression: str = "") -> bytes:
    """Return a tar archive; `compression` is gz, bz2, xz or nothing."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode=f"w:{compression}") as archive:  # type: ignore[call-overload]
        for name, text in members.items():
            member = text if isinstance(text, bytes) else text.encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(member)
            archive.addfile(entry, io.BytesIO(member))
    return content.getvalue()


def make_zip(members: Members, compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return a zip archive; `compression` is a constant of zipfile."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", compression) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return content.getvalue()
