import codecs
import gzip
from itertools import islice
from pathlib import Path

import pytest

from tfnmt.data.corpora.text_files import (
    BINARY,
    check_readable,
    decode_lines,
    read_lines,
    read_pairs,
)
from tfnmt.errors import UserError

NOT_LINE_ENDS = ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\r"]

SENTENCES = {
    "Urdu with ZWNJ": "یہ ایک آزمائش\u200cہے۔",
    "Arabic": "اَلْعَرَبِيَّةُ لُغَةٌ جَمِيلَة؟",
    "Chinese": "我们今天去公园。",
    "full-width": "Ａ１！",
    "emoji": "👩\u200d👩\u200d👧\u200d👦 👍🏽 🏳️\u200d🌈",
    "NBSP": "10\u00a0000\u202fkm",
    "decomposed": "Cafe\u0301 u\u0308ber",
    "composed": "Café über",
    "spaces": "  two  spaces\tand a tab ",
    "beyond the basic plane": "𝔘𐍈",
    "BOM inside": "a\ufeffb",
}


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def lines_of(tmp_path: Path, content: bytes) -> list[str]:
    return list(read_lines(write(tmp_path / "text", content)))


def test_lines_lose_both_kinds_of_line_end(tmp_path: Path) -> None:
    assert lines_of(tmp_path, b"one\ntwo\r\nthree\n") == ["one", "two", "three"]


@pytest.mark.parametrize("character", NOT_LINE_ENDS)
def test_other_line_separators_do_not_end_a_line(tmp_path: Path, character: str) -> None:
    line = f"one{character}two"
    assert lines_of(tmp_path, f"{line}\nthree\n".encode()) == [line, "three"]


def test_last_line_may_lack_a_line_end(tmp_path: Path) -> None:
    assert lines_of(tmp_path, b"one\ntwo") == ["one", "two"]


def test_empty_lines_are_kept(tmp_path: Path) -> None:
    assert lines_of(tmp_path, b"\n\none\r\n\r\n\n") == ["", "", "one", "", ""]


def test_empty_file_has_no_lines(tmp_path: Path) -> None:
    assert lines_of(tmp_path, b"") == []


def test_initial_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    assert lines_of(tmp_path, codecs.BOM_UTF8 + b"one\ntwo\n") == ["one", "two"]


@pytest.mark.parametrize("sentence", SENTENCES.values(), ids=SENTENCES.keys())
def test_code_points_are_unchanged(tmp_path: Path, sentence: str) -> None:
    assert lines_of(tmp_path, f"x\n{sentence}\n".encode()) == ["x", sentence]


@pytest.mark.parametrize(
    ("line", "byte"),
    [(b"caf\xe9", 4), (b"\xff", 1), (b"a\xc3", 2), (b"\xed\xa0\x80", 1), (b"ok \xc0\x80", 4)],
)
def test_invalid_utf_8_error_names_file_line_and_byte(
    tmp_path: Path, line: bytes, byte: int
) -> None:
    path = write(tmp_path / "my.en", b"one\ntwo\n" + line + b"\nfour\n")
    with pytest.raises(UserError) as caught:
        list(read_lines(path))
    assert str(caught.value).startswith(f"{path}:3: not UTF-8 (byte {byte} of the line); ")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le"])
@pytest.mark.parametrize("errors", ["strict", "replace", "surrogateescape"])
def test_utf_16_is_an_error_that_names_the_encoding(
    tmp_path: Path, encoding: str, errors: str
) -> None:
    path = write(tmp_path / "my.en", "A sentence.\nAnother one.\n".encode(encoding))
    with pytest.raises(UserError, match=rf"^{path}: UTF-16; .*iconv"):
        list(read_lines(path, errors))


@pytest.mark.parametrize("start", BINARY)
def test_binary_file_is_refused(tmp_path: Path, start: bytes) -> None:
    path = write(tmp_path / "my.en", start + b"\n\xe2\x80\n")
    with pytest.raises(UserError, match=rf"^{path}: a PDF, RTF, zip or old Office file; "):
        list(read_lines(path, "replace"))


def test_nul_characters_in_text_are_kept(tmp_path: Path) -> None:
    lines = ["\x00", "A \x00 within a sentence.", "\x00\x00"]
    assert lines_of(tmp_path, "\n".join(lines).encode()) == lines
    assert lines_of(tmp_path, "\n".join(lines[1:]).encode()) == lines[1:]


def test_lines_that_end_with_carriage_returns_are_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "my.en", b"one\rtwo\rthree\r")
    with pytest.raises(UserError, match=rf"^{path}: ends lines with carriage returns; "):
        list(read_lines(path))
    assert lines_of(tmp_path, b"one\r") == ["one"]


def test_lines_before_an_invalid_one_are_read() -> None:
    lines = decode_lines([b"one\n", b"two\n", b"\xff\n"], "standard input")
    assert list(islice(lines, 2)) == ["one", "two"]
    with pytest.raises(UserError, match="standard input:3: "):
        next(lines)


@pytest.mark.parametrize("name", ["none.en", "."])
def test_unreadable_file_error_names_it(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError) as caught:
        list(read_lines(tmp_path / name))
    assert str(caught.value).startswith(f"{tmp_path / name}: ")
    assert "; " in str(caught.value)


def test_check_readable_error_names_a_path_that_is_too_long(tmp_path: Path) -> None:
    path = tmp_path / ("a" * 300)
    with pytest.raises(UserError, match=f"{path}: .*too long"):
        check_readable(path)


def test_pairs_are_lines_with_the_same_number(tmp_path: Path) -> None:
    source = write(tmp_path / "a.en", b"one\n\nthree\x0b\n")
    target = write(tmp_path / "a.de", codecs.BOM_UTF8 + b"eins\r\nzwei\r\n")
    write(target, target.read_bytes() + "drei\u2028".encode())
    pairs = [("one", "eins"), ("", "zwei"), ("three\x0b", "drei\u2028")]
    assert list(read_pairs(source, target)) == pairs


@pytest.mark.parametrize(("sources", "targets"), [(3, 5), (5, 3), (0, 1), (1, 0), (1234, 1233)])
def test_different_lengths_error_names_both_files(
    tmp_path: Path, sources: int, targets: int
) -> None:
    source = write(tmp_path / "a.en", b"word\n" * sources)
    target = write(tmp_path / "a.de", b"Wort\n" * targets)
    with pytest.raises(UserError) as caught:
        list(read_pairs(source, target))
    start = f"{source}: {sources:,} lines, but {target} has {targets:,}; "
    assert str(caught.value).startswith(start)


def test_empty_files_are_an_error(tmp_path: Path) -> None:
    source, target = write(tmp_path / "a.en", b""), write(tmp_path / "a.de", b"")
    with pytest.raises(UserError, match="empty; ") as caught:
        list(read_pairs(source, target))
    assert str(source) in str(caught.value)


def test_missing_aligned_file_error_names_it(tmp_path: Path) -> None:
    source = write(tmp_path / "a.en", b"word\n")
    with pytest.raises(UserError, match=r"a\.de: No such file or directory"):
        list(read_pairs(source, tmp_path / "a.de"))


def test_undecodable_bytes_become_surrogates_with_surrogateescape(tmp_path: Path) -> None:
    source = write(tmp_path / "a.en", b"caf\xe9\ntwo\n")
    target = write(tmp_path / "a.de", b"Kaffee\n\xff\n")
    pairs = [("caf\udce9", "Kaffee"), ("two", "\udcff")]
    assert list(read_pairs(source, target, errors="surrogateescape")) == pairs


def test_compressed_file_has_the_lines_of_the_uncompressed_one(tmp_path: Path) -> None:
    content = codecs.BOM_UTF8 + "one\r\n\nthree\u2028\n".encode()
    source = write(tmp_path / "a.en.gz", gzip.compress(content))
    assert list(read_lines(source)) == lines_of(tmp_path, content) == ["one", "", "three\u2028"]
    pairs = [("one", "one"), ("", ""), ("three\u2028", "three\u2028")]
    assert list(read_pairs(source, tmp_path / "text")) == pairs


def test_compressed_file_is_decompressed_while_reading(tmp_path: Path) -> None:
    compressed = gzip.compress(b"one\n" + b"more text\n" * 100_000)
    lines = read_lines(write(tmp_path / "a.en.gz", compressed[: len(compressed) // 2]))
    assert next(lines) == "one"


@pytest.mark.parametrize("end", [5, 15, -9, -1])
def test_truncated_gzip_file_error_names_it(tmp_path: Path, end: int) -> None:
    path = write(tmp_path / "a.en.gz", gzip.compress(b"one\ntwo\nthree\n")[:end])
    with pytest.raises(UserError) as caught:
        list(read_lines(path))
    assert str(caught.value).startswith(f"{path}: the gzip data ends early; ")


DAMAGED = bytearray(gzip.compress(b"one\ntwo\nthree\n"))
DAMAGED[-5] ^= 1  # in the checksum


@pytest.mark.parametrize("content", [b"plain text\n", DAMAGED, DAMAGED[:10] + b"\xff" * 20])
def test_damaged_gzip_file_error_names_it(tmp_path: Path, content: bytes) -> None:
    path = write(tmp_path / "a.en.gz", content)
    with pytest.raises(UserError) as caught:
        list(read_lines(path))
    assert str(caught.value).startswith(f"{path}: not gzip data, or damaged; ")


def test_missing_compressed_file_error_names_it(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.en\.gz: No such file or directory; "):
        list(read_lines(tmp_path / "none.en.gz"))
