"""Damaged archives of corpora are refused, or give the bytes of their members."""

import bz2
import contextlib
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.damage import EDITS, Edit, edited
from tfnmt.data.corpora.archives import read_members
from tfnmt.errors import UserError

TEXTS = {"a/train.en": b"the dog sees every cat\n" * 50, "./train.de": b"der Hund\n" * 90}
MEMBERS = TEXTS | {"val.en.gz": gzip.compress(b"rest sets\n" * 20, mtime=0)}


def as_tar(members: dict[str, bytes]) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return archive.getvalue()


def as_zip(compression: int) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", compression) as file:
        for name, content in MEMBERS.items():
            file.writestr(name, content)
    return archive.getvalue()


TAR = as_tar(MEMBERS)
ZIPS = [as_zip(zipfile.ZIP_STORED), as_zip(zipfile.ZIP_DEFLATED), as_zip(zipfile.ZIP_BZIP2)]
COMPRESS: list[Callable[[bytes], bytes]] = [bytes, gzip.compress, bz2.compress, lzma.compress]


def read_all(path: Path, names: list[str]) -> dict[str, bytes]:
    """Read all members, or as many as precede the damage. Only UserErrors are accepted."""
    found = {}
    with contextlib.suppress(UserError):
        for name, stream in read_members(path, names):
            found[name] = stream.read()
    return found


def archive(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "corpus"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("compress", COMPRESS)
@given(edits=EDITS)
def test_tar_with_damaged_members_is_read_or_refused(
    tmp_path: Path, compress: Callable[[bytes], bytes], edits: list[Edit]
) -> None:
    read_all(archive(tmp_path, compress(edited(TAR, edits))), list(MEMBERS))


@pytest.mark.parametrize("compress", COMPRESS[1:])
@given(edits=EDITS)
def test_damaged_compressed_tar_gives_its_texts_or_an_error(
    tmp_path: Path, compress: Callable[[bytes], bytes], edits: list[Edit]
) -> None:
    """The checksums of the compression notice all damage in the members."""
    path = archive(tmp_path, edited(compress(TAR), edits))
    expected = MEMBERS | {"val.en.gz": gzip.decompress(MEMBERS["val.en.gz"])}
    for name, content in read_all(path, list(MEMBERS)).items():
        assert content == expected[name]


@given(st.sampled_from(ZIPS), EDITS)
def test_damaged_zip_is_read_or_refused(tmp_path: Path, whole: bytes, edits: list[Edit]) -> None:
    read_all(archive(tmp_path, edited(whole, edits)), list(MEMBERS))


@given(st.sampled_from(COMPRESS[1:]), EDITS, st.binary(max_size=2000))
def test_damaged_compressed_file_is_read_or_refused(
    tmp_path: Path, compress: Callable[[bytes], bytes], edits: list[Edit], text: bytes
) -> None:
    read_all(archive(tmp_path, edited(compress(text), edits)), ["train.en"])
