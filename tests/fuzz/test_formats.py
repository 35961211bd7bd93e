"""Files of parallel text: any bytes give pairs or a one-line error, and written pairs are read."""

import csv
import gzip
import io
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, SubElement, tostring

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tfnmt.data.corpora.discovery import find_languages, find_texts
from tfnmt.data.corpora.formats import Text
from tfnmt.data.corpora.text_files import Pair
from tfnmt.errors import UserError

SUFFIXES = (".tsv", ".csv", ".jsonl", ".tmx")
FRAGMENTS = {
    ".tsv": "\t en de English German source target",
    ".csv": '," en de source target en,de\n',
    ".jsonl": '{ } [ ] " : , \\ "en" "de" "source" "target" "translation" null 1e999 '
    '\\ud800 {"en":',
    ".tmx": "< > </ /> & ; &#13; &#x1F600; <tu> </tu> <tuv <tuv> </tuv> <seg> </seg> <ph> </ph> "
    '<ph/> <hi> </hi> <body> </body> <tmx> </tmx> xml:lang="en"> xml:lang="de"> lang="de"> '
    '<!DOCTYPE [ ]> <!ENTITY <![CDATA[ ]]> <!-- --> <?xml version="1.0" encoding="utf-16"?> '
    '<tmx><body><tu><tuv xml:lang="en"><seg> </seg></tuv><tuv xml:lang="de"><seg> '
    "</seg></tuv></tu></body></tmx>",
}
ODD = [*"\0\t\n\r \x0b\x0c\x1c\x85\xa0\ufeff\u2028\u2581\ufffd😀", "\r\n", "''", '""']
ERRORS = st.sampled_from(["strict", "surrogateescape", "replace"])


def contents(suffix: str) -> st.SearchStrategy[bytes]:
    """Return bytes with and without the structure of a format."""
    fragments = [fragment.encode() for fragment in (*FRAGMENTS[suffix].split(" "), *ODD, "word")]
    parts = st.one_of(st.sampled_from(fragments), st.binary(max_size=4))
    return st.one_of(st.binary(), st.lists(parts, max_size=40).map(b"".join))


def outcome(function: Callable[..., Any], *arguments: object) -> Any:
    """Return the result of a function, or the problems of its UserError, one line each."""
    try:
        return function(*arguments)
    except UserError as error:
        problems = error.problems
    assert all("; " in problem and "\n" not in problem for problem in problems)
    return problems


def check_pairs(text: Text, errors: str) -> None:
    """Check that reading gives pairs of single lines, or an error."""
    for pair in outcome(lambda: list(text.pairs(errors))):
        assert isinstance(pair, str) or all("\n" not in side for side in pair)


# --- Any bytes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", SUFFIXES)
@given(data=st.data(), compressed=st.booleans(), errors=ERRORS)
def test_any_file_gives_pairs_or_an_error(
    tmp_path: Path, suffix: str, data: st.DataObject, compressed: bool, errors: str
) -> None:
    content = data.draw(contents(suffix))
    path = tmp_path / f"my{suffix}{'.gz' * compressed}"
    path.write_bytes(gzip.compress(content, 1) if compressed else content)
    (text,) = find_texts([path], "en", "de")
    check_pairs(text, errors)


@given(source=contents(".tsv"), target=contents(".tsv"), errors=ERRORS)
def test_any_aligned_files_give_pairs_or_an_error(
    tmp_path: Path, source: bytes, target: bytes, errors: str
) -> None:
    names = tmp_path / "my.en", tmp_path / "my.de"
    for name, content in zip(names, (source, target), strict=True):
        name.write_bytes(content)
    (text,) = find_texts(names, "en", "de")
    check_pairs(text, errors)


@pytest.mark.parametrize("suffix", SUFFIXES)
@given(position=st.integers(0, 500), damage=st.binary(max_size=3), end=st.integers(0, 500))
def test_damaged_compressed_file_gives_pairs_or_an_error(
    tmp_path: Path, suffix: str, position: int, damage: bytes, end: int
) -> None:
    whole = bytearray(gzip.compress(WRITERS[suffix](PAIRS * 20), mtime=0))
    whole[position : position + len(damage)] = damage
    path = tmp_path / f"my{suffix}.gz"
    path.write_bytes(whole[: len(whole) - end])
    (text,) = find_texts([path], "en", "de")
    check_pairs(text, "strict")


# --- Written pairs --------------------------------------------------------------------------------


def as_tsv(pairs: Sequence[Pair]) -> bytes:
    return "".join(f"{source}\t{target}\n" for source, target in [("en", "de"), *pairs]).encode()


def as_csv(pairs: Sequence[Pair]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows([("en", "de"), *pairs])
    return text.getvalue().encode()


def as_json(pairs: Sequence[Pair]) -> bytes:
    return "".join(f"{json.dumps({'de': de, 'en': en})}\n" for en, de in pairs).encode()


def as_tmx(pairs: Sequence[Pair]) -> bytes:
    root = Element("tmx", version="1.4")
    body = SubElement(root, "body")
    for pair in pairs:
        unit = SubElement(body, "tu")
        for language, sentence in zip(("en-GB", "de"), pair, strict=True):
            variant = SubElement(unit, "tuv", {"xml:lang": language})
            SubElement(variant, "seg").text = sentence
    return tostring(root, "utf-8")


WRITERS: dict[str, Callable[[Sequence[Pair]], bytes]] = {
    ".tsv": as_tsv,
    ".csv": as_csv,
    ".jsonl": as_json,
    ".tmx": as_tmx,
}
PAIRS = [("one", "eins"), ('two "quoted", <&>', "zwei\u2028Zeilen"), (" three ", "drei 😀")]

# Characters that every format can contain. XML has no control characters and no U+FFFE.
CHARACTERS = st.characters(
    exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff", include_characters="\t\x85"
)
SENTENCES = st.text(st.one_of(CHARACTERS, st.sampled_from(" \"',\\<>&;#\u2028\ufeff\u2581")))
UNITS = st.tuples(SENTENCES, SENTENCES)


def with_text(pairs: list[Pair]) -> list[Pair]:
    """Return pairs in which both sides have text, because a file without text is an error."""
    return [*pairs, ("the end", "das Ende")]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".tmx"])
@given(pairs=st.lists(UNITS).map(with_text), compressed=st.booleans())
@example(pairs=PAIRS, compressed=False)
def test_written_pairs_are_read(
    tmp_path: Path, suffix: str, pairs: list[Pair], compressed: bool
) -> None:
    content = WRITERS[suffix](pairs)
    path = tmp_path / f"my{suffix}{'.gz' * compressed}"
    path.write_bytes(gzip.compress(content, 1) if compressed else content)
    (text,) = find_texts([path], "en", "de")
    assert list(text.pairs()) == pairs


@given(pairs=st.lists(UNITS).map(with_text))
def test_pairs_in_lines_are_read(tmp_path: Path, pairs: list[Pair]) -> None:
    pairs = [(en.replace("\t", " "), de.replace("\t", " ")) for en, de in pairs]
    path = tmp_path / "my.tsv"
    path.write_bytes(as_tsv(pairs))
    names = tmp_path / "my.de", tmp_path / "my.en"
    for name, side in zip(names, (1, 0), strict=True):
        lines = "".join(f"{pair[side]}\n" for pair in [("first", "erste"), *pairs])
        name.write_bytes(lines.encode())
    tsv, aligned = find_texts([path, *names], "en", "de")
    assert list(tsv.pairs()) == pairs
    assert list(aligned.pairs()) == [("first", "erste"), *pairs]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
@given(pairs=st.lists(st.tuples(*[st.text("ab\r\n ", max_size=8)] * 2)).map(with_text))
@example(pairs=[("", "\r\r\n"), ("the end", "das Ende")])
def test_line_breaks_in_cells_become_spaces(tmp_path: Path, suffix: str, pairs: list[Pair]) -> None:
    path = tmp_path / f"my{suffix}"
    path.write_bytes(WRITERS[suffix](pairs))
    (text,) = find_texts([path], "en", "de")

    read = [tuple(map(single_spaces, pair)) for pair in text.pairs()]
    assert read == [tuple(map(single_spaces, pair)) for pair in pairs]


def single_spaces(text: str) -> str:
    """Replace white space with one space, because a run of line breaks may lose some of them."""
    return re.sub(r"\s+", " ", text)


# --- Names ----------------------------------------------------------------------------------------

PARTS = ("my", "train", ".", "..", "/", "//", ".en", ".de", ".fr-FR", ".txt", ".gz", ".tsv", ".TMX")
PARTS += (".csv.gz", "en", "de", "-", "_", "a.b", " ", "\udcff")
NAMES = st.one_of(
    st.text(st.characters(exclude_characters="\0"), max_size=300),
    st.lists(st.sampled_from(PARTS), max_size=6).map("".join),
).map(lambda name: f".{name}" if name.startswith("/") else name)  # not outside the folder
LANGUAGES = st.sampled_from(["en", "de", "pt_BR", "pt_PT", "digits", "src", "zh_Hans"])


@given(names=st.lists(NAMES, max_size=5), source=LANGUAGES, target=LANGUAGES)
def test_any_names_give_texts_or_an_error(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    names: list[str],
    source: str,
    target: str,
) -> None:
    (tmp_path / "text.tsv").write_text("one\teins\n")
    monkeypatch.chdir(tmp_path)
    assert bool(outcome(find_texts, names, source, target)) == bool(names)


@given(names=st.lists(NAMES, max_size=5), languages=st.permutations(["en", None, None]))
def test_any_names_give_languages_or_an_error(
    names: list[str], languages: list[str | None]
) -> None:
    found = outcome(find_languages, names, languages[0], languages[1])
    assert found is None or all(found)
