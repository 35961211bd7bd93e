"""Damaged archives of corpora are refused, or give the bytes of their members."""

import bz2
import contextlib
import gzip
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.archives import make_tar, make_zip
from tests.fuzz.damage import EDITS, Edit, edited
from tfnmt.data.corpora.archives import read_members
from tfnmt.errors import UserError

TEXTS = {
    "a/train.en": b"the dog sees every cat\n" * 50,
    "./train.de": b"der Hund\n" * 90,
    "val.en.gz": b"rest sets\n" * 20,  # decompressed by the reader
}
MEMBERS = TEXTS | {"val.en.gz": gzip.compress(TEXTS["val.en.gz"], mtime=0)}
TAR = make_tar(MEMBERS)
COMPRESSIONS = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2]
ZIPS = [make_zip(MEMBERS, compression) for compression in COMPRESSIONS]
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
    for name, content in read_all(path, list(MEMBERS)).items():
        assert content == TEXTS[name]


@given(st.sampled_from(ZIPS), EDITS)
def test_damaged_zip_is_read_or_refused(tmp_path: Path, whole: bytes, edits: list[Edit]) -> None:
    read_all(archive(tmp_path, edited(whole, edits)), list(MEMBERS))


@given(st.sampled_from(COMPRESS[1:]), EDITS, st.binary(max_size=2000))
def test_damaged_compressed_file_is_read_or_refused(
    tmp_path: Path, compress: Callable[[bytes], bytes], edits: list[Edit], text: bytes
) -> None:
    read_all(archive(tmp_path, edited(compress(text), edits)), ["train.en"])
