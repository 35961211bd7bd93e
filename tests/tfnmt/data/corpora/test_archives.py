import bz2
import gzip
import io
import lzma
import random
import tarfile
import zipfile
from collections.abc import Callable, Collection
from itertools import islice
from pathlib import Path

import pytest

from tests.archives import make_tar, make_zip
from tfnmt.data.corpora.archives import MIN_LIMIT, read_members
from tfnmt.errors import UserError

NOISE = random.Random(1).randbytes(200_000)
FILES = {
    "./README": b"read me\n",
    "sets/train.en": b"one\ntwo\n" + NOISE,
    "sets/train.de": b"eins\nzwei\n" + NOISE[::-1],
    "sets/test.en.gz": gzip.compress(b"three\n"),
}


def tar(path: Path, files: dict[str, bytes], compression: str = "gz") -> Path:
    path.write_bytes(make_tar(files, compression))
    return path


def zipped(path: Path, files: dict[str, bytes]) -> Path:
    path.write_bytes(make_zip(files))
    return path


KINDS: dict[str, Callable[[Path, dict[str, bytes]], Path]] = {
    "tar": lambda path, files: tar(path, files, ""),
    "tar.gz": lambda path, files: tar(path, files, "gz"),
    "tar.bz2": lambda path, files: tar(path, files, "bz2"),
    "tar.xz": lambda path, files: tar(path, files, "xz"),
    "zip": zipped,
}
kinds = pytest.mark.parametrize("kind", KINDS)


def contents(path: Path, names: Collection[str]) -> dict[str, bytes]:
    return {name: stream.read() for name, stream in read_members(path, names)}


def refused(path: Path, names: Collection[str]) -> str:
    with pytest.raises(UserError) as caught:
        contents(path, names)
    assert "; " in str(caught.value)
    return str(caught.value)


@kinds
def test_members_are_in_the_order_of_the_archive(tmp_path: Path, kind: str) -> None:
    path = KINDS[kind](tmp_path / "any.name", FILES)
    found = contents(path, {"sets/train.de", "README", "sets/train.en"})
    assert list(found) == ["README", "sets/train.en", "sets/train.de"]
    assert found["sets/train.en"] == FILES["sets/train.en"]
    assert found["sets/train.de"] == FILES["sets/train.de"]
    assert list(tmp_path.iterdir()) == [path]


@kinds
def test_members_can_be_read_in_part(tmp_path: Path, kind: str) -> None:
    path = KINDS[kind](tmp_path / "archive", FILES)
    members = read_members(path, ["sets/train.en", "sets/train.de"])
    lines = {name: list(islice(stream, 2)) for name, stream in members}
    assert lines == {
        "sets/train.en": [b"one\n", b"two\n"],
        "sets/train.de": [b"eins\n", b"zwei\n"],
    }


@kinds
def test_gz_member_is_decompressed(tmp_path: Path, kind: str) -> None:
    path = KINDS[kind](tmp_path / "archive", FILES)
    assert contents(path, ["sets/test.en.gz"]) == {"sets/test.en.gz": b"three\n"}


@kinds
def test_member_is_closed_when_the_next_is_requested(tmp_path: Path, kind: str) -> None:
    members = read_members(KINDS[kind](tmp_path / "archive", FILES), ["README", "sets/train.en"])
    _, stream = next(members)
    next(members)
    with pytest.raises(ValueError, match="closed"):
        stream.read()


@pytest.mark.parametrize("requested", ["README", "./README"])
@pytest.mark.parametrize("stored", ["README", "./README"])
@kinds
def test_names_match_with_and_without_leading_dot_slash(
    tmp_path: Path, kind: str, stored: str, requested: str
) -> None:
    path = KINDS[kind](tmp_path / "archive", {stored: b"read me\n"})
    assert contents(path, [requested]) == {requested: b"read me\n"}


@pytest.mark.parametrize("name", ["corpus.en", "corpus.en.gz"])
@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("text", [b"", b"one\n", b"one\n" * 10_000])
def test_single_compressed_file_gets_the_requested_name(
    tmp_path: Path, text: bytes, compress: Callable[[bytes], bytes], name: str
) -> None:
    path = tmp_path / "file"
    path.write_bytes(compress(text))
    assert contents(path, [name]) == {name: text}
    assert f"{path}: contains no a, b, " in refused(path, ["a", "b"])


def test_tar_of_several_gzip_streams_is_read_completely(tmp_path: Path) -> None:
    plain = tar(tmp_path / "plain", FILES, "").read_bytes()
    path = tmp_path / "archive"
    path.write_bytes(gzip.compress(plain[:100_000]) + gzip.compress(plain[100_000:]))
    assert contents(path, ["sets/train.de"])["sets/train.de"] == FILES["sets/train.de"]


@pytest.mark.parametrize("kind", ["tar", "tar.gz"])  # the start of other kinds cannot be read alone
def test_reading_stops_after_the_last_requested_member(tmp_path: Path, kind: str) -> None:
    path = KINDS[kind](tmp_path / "archive", FILES)
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 3 // 4])
    assert contents(path, ["README"]) == {"README": b"read me\n"}


@kinds
def test_missing_members_are_all_named(tmp_path: Path, kind: str) -> None:
    path = KINDS[kind](tmp_path / "archive", FILES)
    message = refused(path, ["sets/train.fr", "sets/train.en", "train.de"])
    assert message.startswith(f"{path}: contains no sets/train.fr, train.de, ")


@pytest.mark.parametrize("name", ["../../evil", "/tmp/tfnmt-evil", "sets/../../evil"])
@kinds
def test_member_names_are_never_used_as_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, name: str
) -> None:
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    path = KINDS[kind](folder / "archive", {name: b"evil", "good": b"good"})
    assert contents(path, ["good"]) == {"good": b"good"}
    assert contents(path, [name]) == {name: b"evil"}  # the content, whatever path the name is
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "a", folder, path]
    assert not Path("/tmp/tfnmt-evil").exists()


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE]
)
def test_links_devices_and_folders_are_ignored(tmp_path: Path, kind: bytes) -> None:
    path = tmp_path / "archive.tgz"
    with tarfile.open(path, "w:gz") as archive:
        secret = tarfile.TarInfo("secret")
        secret.size = 6
        archive.addfile(secret, io.BytesIO(b"secret"))
        link = tarfile.TarInfo("train.en")
        link.type, link.linkname = kind, "secret"
        archive.addfile(link)
    assert "contains no train.en, " in refused(path, ["train.en"])


def test_links_in_a_zip_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "archive.zip"
    with zipfile.ZipFile(path, "w") as archive:
        link = zipfile.ZipInfo("train.en")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
        archive.mkdir("train.de")
    assert "contains no train.en, train.de/, " in refused(path, ["train.en", "train.de/"])


@pytest.mark.parametrize("fraction", [0.02, 0.3, 0.6, 0.9])
@kinds
def test_truncated_archive_is_an_error(tmp_path: Path, kind: str, fraction: float) -> None:
    path = KINDS[kind](tmp_path / "archive", FILES)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * fraction)])
    message = refused(path, ["sets/train.de"])
    assert message.startswith(f"{path}: damaged (")
    assert message.endswith("); remove it and run again")


@pytest.mark.parametrize("kind", ["tar.gz", "tar.bz2", "tar.xz", "zip"])
def test_changed_bytes_are_an_error(tmp_path: Path, kind: str) -> None:
    path = KINDS[kind](tmp_path / "archive", FILES)
    content = bytearray(path.read_bytes())
    middle = len(content) // 4
    content[middle : middle + 100] = bytes(100)
    path.write_bytes(content)
    names = ["sets/train.en", "missing"]  # reads to the end, where the checksum is
    assert refused(path, names).startswith(f"{path}: damaged (")


def test_invalid_deflate_block_is_an_error(tmp_path: Path) -> None:
    content = bytearray(gzip.compress(b"one\n"))
    content[10] |= 0b110  # the first byte after the header; 3 is no valid block type
    path = tmp_path / "corpus.en.gz"
    path.write_bytes(content)
    assert refused(path, ["corpus.en"]).startswith(f"{path}: damaged (")


@pytest.mark.parametrize(
    ("place", "value"), [(8, 1), (10, 99)], ids=["encrypted", "unknown method"]
)
def test_unsupported_zip_is_an_error(tmp_path: Path, place: int, value: int) -> None:
    path = KINDS["zip"](tmp_path / "archive", {"train.de": b"eins\n"})
    content = bytearray(path.read_bytes())
    entry = content.index(b"PK\x01\x02")  # in the directory, which zipfile trusts
    content[entry + place] = content[place - 2] = value
    path.write_bytes(content)
    assert refused(path, ["train.de"]).startswith(f"{path}: damaged (")


def test_truncated_file_is_an_error_while_the_caller_reads(tmp_path: Path) -> None:
    path = tmp_path / "corpus.en.gz"
    path.write_bytes(gzip.compress(b"one\n" + NOISE)[:-100_000])
    members = read_members(path, ["corpus.en"])
    _, stream = next(members)
    assert stream.readline() == b"one\n"
    with pytest.raises(UserError, match="damaged"):
        stream.read()


def test_damaged_gz_member_is_an_error(tmp_path: Path) -> None:
    path = tar(tmp_path / "archive", {"a.gz": gzip.compress(NOISE)[:-20]})
    assert refused(path, ["a.gz"]).startswith(f"{path}: damaged (")
    path = tar(tmp_path / "archive", {"a.gz": b"no gzip at all"})
    assert refused(path, ["a.gz"]).startswith(f"{path}: damaged (")


@pytest.mark.parametrize(
    "content", [b"", b"<html>log in</html>", NOISE, b"PK\x03\x04", b"\x1f\x8b"]
)
def test_file_that_is_no_archive_is_an_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "archive.tgz"
    path.write_bytes(content)
    assert refused(path, ["a"]).startswith(f"{path}: ")


@pytest.mark.parametrize("kind", ["tar.gz", "zip", "tar"])
def test_member_that_unpacks_to_far_more_is_an_error(tmp_path: Path, kind: str) -> None:
    bomb = bytes(MIN_LIMIT + 1)
    name, content = ("a.gz", gzip.compress(bomb)) if kind == "tar" else ("a", bomb)
    path = KINDS[kind](tmp_path / "archive", {name: content})
    assert path.stat().st_size < MIN_LIMIT / 100
    message = refused(path, [name])
    assert message.startswith(f"{path}: damaged (unpacks to more than {MIN_LIMIT:,} bytes); ")


def test_header_that_unpacks_to_far_more_is_an_error(tmp_path: Path) -> None:
    path, header = tmp_path / "archive.tgz", tarfile.TarInfo("a")
    header.type, header.size = tarfile.XHDTYPE, 2 * MIN_LIMIT
    path.write_bytes(gzip.compress(header.tobuf() + bytes(header.size), 1))
    assert "unpacks to more than" in refused(path, ["a"])


def test_end_that_unpacks_to_far_more_is_an_error(tmp_path: Path) -> None:
    """A reader that looks for a missing member reads to the checksum at the end."""
    path = tar(tmp_path / "archive", {"a": b"x"}, "")
    content = path.read_bytes() + bytes(2 * MIN_LIMIT)
    path.write_bytes(gzip.compress(content, 1))
    assert "unpacks to more than" in refused(path, ["b"])


@pytest.mark.parametrize("name", ["none.tgz", "."])
def test_unreadable_archive_error_names_it(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    assert refused(path, ["a"]).endswith("; put the archive there")
