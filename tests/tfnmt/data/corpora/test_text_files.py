import codecs
import gzip
from itertools import islice
from pathlib import Path

import pytest

from tfnmt.data.corpora.text_files import check_readable, decode_lines, read_lines, read_pairs
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


def test_both_kinds_of_line_end_are_removed(tmp_path: Path) -> None:
    assert lines_of(tmp_path, b"one\ntwo\r\nthree\n") == ["one", "two", "three"]


@pytest.mark.parametrize("character", NOT_LINE_ENDS)
def test_nothing_else_ends_a_line(tmp_path: Path, character: str) -> None:
    line = f"one{character}two"
    assert lines_of(tmp_path, f"{line}\nthree\n".encode()) == [line, "three"]


def test_a_last_line_needs_no_end(tmp_path: Path) -> None:
    assert lines_of(tmp_path, b"one\ntwo") == ["one", "two"]


def test_empty_lines_stay(tmp_path: Path) -> None:
    assert lines_of(tmp_path, b"\n\none\r\n\r\n\n") == ["", "", "one", "", ""]


def test_an_empty_file_has_no_lines(tmp_path: Path) -> None:
    assert lines_of(tmp_path, b"") == []


def test_a_byte_order_mark_is_passed_over_where_it_stands_first(tmp_path: Path) -> None:
    assert lines_of(tmp_path, codecs.BOM_UTF8 + b"one\ntwo\n") == ["one", "two"]


@pytest.mark.parametrize("sentence", SENTENCES.values(), ids=SENTENCES.keys())
def test_code_points_are_left_alone(tmp_path: Path, sentence: str) -> None:
    assert lines_of(tmp_path, f"x\n{sentence}\n".encode()) == ["x", sentence]


@pytest.mark.parametrize(
    ("line", "byte"),
    [(b"caf\xe9", 4), (b"\xff", 1), (b"a\xc3", 2), (b"\xed\xa0\x80", 1), (b"ok \xc0\x80", 4)],
)
def test_what_is_not_utf_8_is_named_by_file_line_and_byte(
    tmp_path: Path, line: bytes, byte: int
) -> None:
    path = write(tmp_path / "my.en", b"one\ntwo\n" + line + b"\nfour\n")
    with pytest.raises(UserError) as caught:
        list(read_lines(path))
    assert str(caught.value).startswith(f"{path}:3: not UTF-8 (byte {byte} of the line); ")


def test_lines_before_a_bad_one_are_read() -> None:
    lines = decode_lines([b"one\n", b"two\n", b"\xff\n"], "standard input")
    assert list(islice(lines, 2)) == ["one", "two"]
    with pytest.raises(UserError, match="standard input:3: "):
        next(lines)


@pytest.mark.parametrize("name", ["none.en", "."])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError) as caught:
        list(read_lines(tmp_path / name))
    assert str(caught.value).startswith(f"{tmp_path / name}: ")
    assert "; " in str(caught.value)


def test_a_name_that_cannot_even_be_looked_for_is_named(tmp_path: Path) -> None:
    path = tmp_path / ("a" * 300)
    with pytest.raises(UserError, match=f"{path}: .*too long"):
        check_readable(path)


def test_pairs_are_lines_of_the_same_number(tmp_path: Path) -> None:
    source = write(tmp_path / "a.en", b"one\n\nthree\x0b\n")
    target = write(tmp_path / "a.de", codecs.BOM_UTF8 + b"eins\r\nzwei\r\n")
    write(target, target.read_bytes() + "drei\u2028".encode())
    pairs = [("one", "eins"), ("", "zwei"), ("three\x0b", "drei\u2028")]
    assert list(read_pairs(source, target)) == pairs


@pytest.mark.parametrize(("sources", "targets"), [(3, 5), (5, 3), (0, 1), (1, 0), (1234, 1233)])
def test_files_of_different_lengths_are_told_both(
    tmp_path: Path, sources: int, targets: int
) -> None:
    source = write(tmp_path / "a.en", b"word\n" * sources)
    target = write(tmp_path / "a.de", b"Wort\n" * targets)
    with pytest.raises(UserError) as caught:
        list(read_pairs(source, target))
    start = f"{source}: {sources:,} lines, but {target} has {targets:,}; "
    assert str(caught.value).startswith(start)


def test_two_empty_files_are_no_corpus(tmp_path: Path) -> None:
    source, target = write(tmp_path / "a.en", b""), write(tmp_path / "a.de", b"")
    with pytest.raises(UserError, match="no text in it") as caught:
        list(read_pairs(source, target))
    assert str(source) in str(caught.value)


def test_a_pair_of_which_one_file_is_missing_names_it(tmp_path: Path) -> None:
    source = write(tmp_path / "a.en", b"word\n")
    with pytest.raises(UserError, match=r"a\.de: No such file or directory"):
        list(read_pairs(source, tmp_path / "a.de"))


def test_undecodable_bytes_come_through_as_surrogates_where_asked(tmp_path: Path) -> None:
    source = write(tmp_path / "a.en", b"caf\xe9\ntwo\n")
    target = write(tmp_path / "a.de", b"Kaffee\n\xff\n")
    pairs = [("caf\udce9", "Kaffee"), ("two", "\udcff")]
    assert list(read_pairs(source, target, errors="surrogateescape")) == pairs


def test_a_packed_file_reads_as_the_unpacked_one(tmp_path: Path) -> None:
    content = codecs.BOM_UTF8 + "one\r\n\nthree\u2028\n".encode()
    source = write(tmp_path / "a.en.gz", gzip.compress(content))
    assert list(read_lines(source)) == lines_of(tmp_path, content) == ["one", "", "three\u2028"]
    pairs = [("one", "one"), ("", ""), ("three\u2028", "three\u2028")]
    assert list(read_pairs(source, tmp_path / "text")) == pairs


def test_a_packed_file_is_read_as_it_is_unpacked(tmp_path: Path) -> None:
    packed = gzip.compress(b"one\n" + b"more text\n" * 100_000)
    lines = read_lines(write(tmp_path / "a.en.gz", packed[: len(packed) // 2]))
    assert next(lines) == "one"


@pytest.mark.parametrize("kept", [5, 15, -9, -1])
def test_gzip_data_that_ends_early_is_named(tmp_path: Path, kept: int) -> None:
    path = write(tmp_path / "a.en.gz", gzip.compress(b"one\ntwo\nthree\n")[:kept])
    with pytest.raises(UserError) as caught:
        list(read_lines(path))
    message = f"{path}: the gzip data ends early; download or compress it again"
    assert str(caught.value) == message


DAMAGED = bytearray(gzip.compress(b"one\ntwo\nthree\n"))
DAMAGED[-5] ^= 1  # in the checksum


@pytest.mark.parametrize("content", [b"plain text\n", DAMAGED, DAMAGED[:10] + b"\xff" * 20])
def test_what_is_no_sound_gzip_data_is_named(tmp_path: Path, content: bytes) -> None:
    path = write(tmp_path / "a.en.gz", content)
    with pytest.raises(UserError) as caught:
        list(read_lines(path))
    message = f"{path}: not gzip data, or damaged; download or compress it again"
    assert str(caught.value) == message


def test_a_packed_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.en\.gz: No such file or directory; "):
        list(read_lines(tmp_path / "none.en.gz"))
