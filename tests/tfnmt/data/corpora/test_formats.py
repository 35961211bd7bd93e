import csv
import gzip
import io
import json
import re
import tracemalloc
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

from tfnmt.data.corpora.discovery import find_texts
from tfnmt.data.corpora.formats import (
    MAX_CELL,
    TMX,
    Aligned,
)
from tfnmt.data.corpora.text_files import Pair
from tfnmt.errors import UserError

SENTENCES = {
    "Urdu with ZWNJ": "یہ ایک آزمائش\u200cہے۔",
    "Arabic": "اَلْعَرَبِيَّةُ لُغَةٌ جَمِيلَة؟",
    "Chinese": "我们今天去公园。",
    "full-width": "Ａ１！",
    "emoji": "👩\u200d👩\u200d👧\u200d👦 👍🏽 🏳️\u200d🌈",
    "NBSP": "\u00a010\u00a0000\u202fkm\u00a0",
    "decomposed": "Cafe\u0301 u\u0308ber",
    "composed": "Café über",
    "spaces": "  two  spaces ",
    "beyond the basic plane": "𝔘𐍈",
    "BOM inside": "a\ufeffb",
    "line separators of Unicode": "one\u2028two\u2029three\x85four",
    "quotes": '"So," she said, "it\'s 5" & <b>.',
    "one quote": '"',
}
UNITS = [(sentence, f"{name}: {sentence}") for name, sentence in SENTENCES.items()]


def as_tsv(pairs: Sequence[Pair]) -> str:
    return "".join(f"{source}\t{target}\n" for source, target in pairs)


def as_csv(pairs: Sequence[Pair]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows([("en", "de"), *pairs])
    return text.getvalue()


def as_json(pairs: Sequence[Pair]) -> str:
    return "".join(json.dumps({"en": source, "de": target}) + "\n" for source, target in pairs)


def as_raw_json(pairs: Sequence[Pair]) -> str:
    objects = [{"translation": {"de": target, "en": source}} for source, target in pairs]
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in objects)


def tmx(units: str, head: str = "", root: str = '<tmx version="1.4">') -> str:
    return f'{head}{root}<header srclang="en"/><body>{units}</body></tmx>'


def unit(*variants: Pair) -> str:
    tuvs = (f'  <tuv xml:lang="{lang}"><seg>{text}</seg></tuv>\n' for lang, text in variants)
    return f"<tu>\n{''.join(tuvs)}</tu>\n"


def as_tmx(pairs: Sequence[Pair]) -> str:
    return tmx("".join(unit(("en", escape(en)), ("de", escape(de))) for en, de in pairs))


WRITERS: dict[str, Callable[[Sequence[Pair]], str]] = {
    ".tsv": as_tsv,
    ".csv": as_csv,
    ".jsonl": as_json,
    ".ndjson": as_raw_json,
    ".tmx": as_tmx,
}


def write(path: Path, content: str | bytes) -> Path:
    data = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def read(path: Path, content: str | bytes, source: str = "en", target: str = "de") -> list[Pair]:
    (text,) = find_texts([write(path, content)], source, target)
    return list(text.pairs())


def problem(path: Path, content: str | bytes) -> str:
    """Return the error for a file, without the name of the file."""
    with pytest.raises(UserError) as caught:
        read(path, content)
    start, _, rest = str(caught.value).partition(":")
    assert start == str(path)
    assert "; " in rest
    assert "\n" not in rest
    return rest


# --- All formats ----------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", ["", ".gz"])
@pytest.mark.parametrize("suffix", WRITERS)
def test_code_points_are_unchanged(tmp_path: Path, suffix: str, compression: str) -> None:
    path = tmp_path / f"my{suffix}{compression}"
    assert read(path, WRITERS[suffix](UNITS)) == UNITS


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".ndjson", ".tmx"])
def test_named_sides_are_read_in_both_directions(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"my{suffix}"
    assert read(path, WRITERS[suffix](UNITS), "de", "en") == [(de, en) for en, de in UNITS]


@pytest.mark.parametrize("compression", ["", ".gz"])
def test_code_points_of_aligned_files_are_unchanged(tmp_path: Path, compression: str) -> None:
    names = [tmp_path / f"my.en{compression}", tmp_path / f"my.de{compression}"]
    for name, side in zip(names, zip(*UNITS, strict=True), strict=True):
        write(name, "".join(f"{sentence}\n" for sentence in side))
    (text,) = find_texts(names, "en", "de")
    assert list(text.pairs()) == UNITS


@pytest.mark.parametrize("suffix", [".tsv", ".csv", ".jsonl"])
def test_byte_order_mark_is_skipped(tmp_path: Path, suffix: str) -> None:
    content = "\ufeff" + WRITERS[suffix](UNITS)
    assert read(tmp_path / f"my{suffix}", content) == UNITS


@pytest.mark.parametrize("suffix", [".tsv", ".csv", ".ndjson"])
def test_invalid_utf_8_error_names_the_line_unless_surrogateescape(
    tmp_path: Path, suffix: str
) -> None:
    pairs = [("one", "eins"), ("caf?", "Kaffee"), ("three", "drei")]
    content = WRITERS[suffix](pairs).encode().replace(b"?", b"\xe9")
    path = tmp_path / f"my{suffix}"
    line = 3 if suffix == ".csv" else 2
    assert problem(path, content).startswith(f"{line}: not UTF-8 ")
    (text,) = find_texts([path], "en", "de")
    escaped = [("one", "eins"), ("caf\udce9", "Kaffee"), ("three", "drei")]
    assert list(text.pairs("surrogateescape")) == escaped


@pytest.mark.parametrize("suffix", WRITERS)
def test_pairs_are_read_incrementally(tmp_path: Path, suffix: str) -> None:
    whole = WRITERS[suffix]([(f"row {number}", f"Zeile {number}") for number in range(20_000)])
    path = write(tmp_path / f"my{suffix}.gz", whole)
    path.write_bytes(path.read_bytes()[:-2000])
    (text,) = find_texts([path], "en", "de")
    pairs = text.pairs()
    assert list(islice(pairs, 2)) == [("row 0", "Zeile 0"), ("row 1", "Zeile 1")]
    with pytest.raises(UserError, match="the gzip data ends early"):
        list(pairs)


@pytest.mark.parametrize("suffix", WRITERS)
def test_missing_file_error_names_it_when_reading_starts(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"none{suffix}"
    (text,) = find_texts([path], "en", "de")
    assert text.paths == (path,)
    with pytest.raises(UserError, match=rf"none\{suffix}: No such file or directory; "):
        next(text.pairs())


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize("pairs", [[], [("", "")]])
def test_file_without_text_is_an_error(tmp_path: Path, suffix: str, pairs: list[Pair]) -> None:
    found = problem(tmp_path / f"my{suffix}", WRITERS[suffix](pairs))
    assert found == " contains no en or de text; check the file and the two languages"


@pytest.mark.parametrize("suffix", WRITERS)
def test_missing_languages_error_names_them(tmp_path: Path, suffix: str) -> None:
    (text,) = find_texts([write(tmp_path / f"my{suffix}", WRITERS[suffix](UNITS))], "fr", "es")
    if suffix == ".tsv":  # without a header, a TSV does not name its languages
        assert list(text.pairs()) == UNITS
    else:
        with pytest.raises(UserError, match=r"\bfr\b.*\bes\b"):
            list(text.pairs())


@pytest.mark.parametrize(
    ("suffix", "content"),
    [
        (".csv", 'en,de\n"one\ntwo","eins\r\nzwei"\n'),
        (".csv", 'en,de\n"one\rtwo","eins\nzwei"\n'),
        (".jsonl", '{"en": "one\\ntwo", "de": "eins\\r\\nzwei"}'),
        (".jsonl", '{"en": "one\\rtwo", "de": "eins\\nzwei"}'),
        (".tmx", tmx(unit(("en", "one\ntwo"), ("de", "\n  eins \t\r\n\n   zwei\n ")))),
    ],
)
def test_line_break_in_a_sentence_becomes_a_space(
    tmp_path: Path, suffix: str, content: str
) -> None:
    assert read(tmp_path / f"my{suffix}", content) == [("one two", "eins zwei")]


# --- Aligned files --------------------------------------------------------------------------------


def aligned(folder: Path, sources: str, targets: str) -> Aligned:
    paths = write(folder / "my.src", sources), write(folder / "my.tgt", targets)
    return Aligned(*paths, ("en", "de"))


@pytest.mark.parametrize(
    "header", [("English", "German"), ("source", "Target"), ("en-GB", "de-DE"), ("de", "en")]
)
def test_header_of_aligned_files_is_an_error(tmp_path: Path, header: Pair) -> None:
    text = aligned(tmp_path, f"{header[0]}\none\n", f"{header[1]}\neins\n")
    with pytest.raises(UserError) as caught:
        list(text.pairs())
    assert str(caught.value).startswith(f"{tmp_path / 'my.src'}:1: a header ({header[0]}), as in ")
    assert f"{tmp_path / 'my.tgt'} ({header[1]}); " in str(caught.value)


def test_names_of_languages_after_the_first_line_are_text(tmp_path: Path) -> None:
    text = aligned(tmp_path, "one\nEnglish\n", "eins\nGerman\n")
    assert list(text.pairs()) == [("one", "eins"), ("English", "German")]


# --- TSV ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "pair"),
    [
        ("", ("one", "two")),
        ("en\tde\tfr\n", ("one", "two")),
        ("de\tEN\n", ("two", "one")),
        ("id\tfr\tde\ten\n", ("four", "three")),
        ("target\tscore\tsource\n", ("three", "one")),
    ],
)
def test_tsv_header_names_the_columns(tmp_path: Path, header: str, pair: Pair) -> None:
    assert read(tmp_path / "my.tsv", f"{header}one\ttwo\tthree\tfour\n") == [pair]


@pytest.mark.parametrize(
    "header",
    ["English\tGerman", "German\tEnglish", "en-GB\tde-DE", "en\tfr", '"en"\t"de"', "id\ten\tfr"],
)
def test_tsv_header_with_other_names_is_an_error(tmp_path: Path, header: str) -> None:
    found = problem(tmp_path / "my.tsv", f"{header}\none\teins\tun\n")
    assert found.startswith(f"1: a header ({header.replace(chr(9), ', ')}); ")
    assert "en and de" in found


@pytest.mark.parametrize("row", ["English\tEnglisch", "German\tDeutsch", "English\tx", "so\tso"])
def test_tsv_pair_with_the_name_of_a_language_is_no_header(tmp_path: Path, row: str) -> None:
    pair = tuple(row.split("\t"))
    assert read(tmp_path / "my.tsv", f"{row}\n") == [pair]


@pytest.mark.parametrize(("suffix", "separator"), [(".tsv", "\t"), (".csv", ",")])
def test_two_columns_of_one_name_are_an_error(tmp_path: Path, suffix: str, separator: str) -> None:
    rows = f"en{separator}de{separator}EN\n1{separator}2{separator}3\n"
    assert problem(tmp_path / f"my{suffix}", rows).startswith("1: two columns are en; ")


def test_tsv_header_is_only_in_the_first_row(tmp_path: Path) -> None:
    pairs = [("one", "two"), ("de", "en")]
    assert read(tmp_path / "my.tsv", "one\ttwo\nde\ten\n") == pairs


def test_short_tsv_row_has_an_empty_side(tmp_path: Path) -> None:
    pairs = [("one", ""), ("", "zwei"), ("", ""), ("four", "vier")]
    assert read(tmp_path / "a.tsv", "one\n\tzwei\n\nfour\tvier\n") == pairs
    pairs = [("", "eins"), ("two", "")]
    assert read(tmp_path / "b.tsv", "de\tx\ten\neins\n\t\ttwo\n") == pairs


def test_tsv_without_a_tab_is_an_error(tmp_path: Path) -> None:
    found = problem(tmp_path / "my.tsv", "one;eins\ntwo;zwei\n")
    assert found == " contains no tab; write en TAB de on each line"


def test_tsv_quotes_are_text(tmp_path: Path) -> None:
    assert read(tmp_path / "my.tsv", '"one\t"zwei"\n') == [('"one', '"zwei"')]


# --- CSV ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "pair"),
    [
        ("en,de", ("one", "two")),
        ("id, De ,EN", ("three", "two")),
        ("Target,Source,en", ("two", "one")),
        ('source,"target",de,en', ("four", "three")),
    ],
)
def test_csv_header_names_the_columns(tmp_path: Path, header: str, pair: Pair) -> None:
    row = ",".join(["one", "two", "three", "four"][: 1 + header.count(",")])
    assert read(tmp_path / "my.csv", f"{header}\n{row}\n") == [pair]


@pytest.mark.parametrize("header", ["one,two", "en,fr", "en;de", "source,de"])
def test_csv_without_a_header_is_an_error(tmp_path: Path, header: str) -> None:
    found = problem(tmp_path / "my.csv", f"{header}\none,two\n")
    columns = ", ".join(header.split(","))
    assert found.startswith(f"1: the columns are {columns}; ")
    assert "en,de or source,target" in found


def test_empty_csv_is_an_error(tmp_path: Path) -> None:
    assert problem(tmp_path / "my.csv", "").startswith("1: the columns are none; ")


def test_csv_cells_may_be_quoted_or_missing(tmp_path: Path) -> None:
    content = 'en,de\n"a, ""b""",c "d"\n\n,zwei\nthree\n'
    pairs = [('a, "b"', 'c "d"'), ("", "zwei"), ("three", "")]
    assert read(tmp_path / "my.csv", content) == pairs


def test_csv_cells_may_be_large(tmp_path: Path) -> None:
    long = "word " * 100_000
    assert read(tmp_path / "my.csv", f"en,de\n{long},{long}\n") == [(long, long)]


def test_csv_reading_never_lowers_the_global_cell_limit(tmp_path: Path) -> None:
    before = csv.field_size_limit(MAX_CELL + 1)
    try:
        read(tmp_path / "my.csv", "en,de\none,eins\n")
        assert csv.field_size_limit() == MAX_CELL + 1
    finally:
        csv.field_size_limit(before)


@pytest.mark.parametrize("row", ['"three,drei', '"three" or so,drei', "three,dr\rei"])
def test_invalid_csv_row_error_names_its_first_line(tmp_path: Path, row: str) -> None:
    content = f'en,de\none,eins\n"two\nlines",zwei\n{row}\nfour,vier\n'
    assert problem(tmp_path / "my.csv", content).startswith("5: not a CSV row (")
    assert problem(tmp_path / "my.csv", f"en,de\n{row}\n").startswith("2: not a CSV row (")
    assert problem(tmp_path / "my.csv", f"{row}\n").startswith("1: not a CSV row (")


def test_csv_row_with_more_cells_than_columns_is_an_error(tmp_path: Path) -> None:
    # An unquoted comma would silently truncate the sentence.
    content = "en,de\none,eins,\ntwo, please,zwei\n"
    assert problem(tmp_path / "my.csv", content).startswith(
        "3: not a CSV row (3 cells below 2 columns)"
    )
    assert read(tmp_path / "my.csv", "en,de\none,eins,\n") == [("one", "eins")]


# --- JSON lines -----------------------------------------------------------------------------------


def test_json_keys_are_languages_or_roles(tmp_path: Path) -> None:
    rows = [
        {"en": "1", "de": "eins"},
        {"target": "zwei", "source": "2", "score": 0.5},
        {"translation": {"de": "drei", "en": "3"}, "id": 3},
        {"translation": {"source": "4", "target": "vier"}},
        {"source": "the web", "de": "fünf"},
        {"translation": "a note", "en": "6", "de": None},
        {"de": "sieben"},
        {},
    ]
    pairs = [("1", "eins"), ("2", "zwei"), ("3", "drei"), ("4", "vier")]
    pairs += [("", "fünf"), ("6", ""), ("", "sieben"), ("", "")]
    content = "\n  \n".join(json.dumps(row) for row in rows)
    assert read(tmp_path / "my.jsonl", content) == pairs


@pytest.mark.parametrize(
    "line", ["{", '["one", "eins"]', '"one"', "null", "{'en': 'one'}", "[" * 100_000, "9" * 5000]
)
def test_line_without_a_json_object_is_an_error(tmp_path: Path, line: str) -> None:
    content = f'{{"en": "one", "de": "eins"}}\n\n{line}\n'
    assert problem(tmp_path / "my.jsonl", content).startswith("3: not a JSON object; ")


@pytest.mark.parametrize("side", ["1", "true", '["two"]', '{"text": "two"}'])
def test_json_side_that_is_no_string_is_an_error(tmp_path: Path, side: str) -> None:
    content = f'{{"en": "one", "de": "eins"}}\n{{"en": "two", "de": {side}}}\n'
    assert problem(tmp_path / "my.jsonl", content).startswith('2: "de" is not a string; ')


@pytest.mark.parametrize(
    "line",
    [
        '{"en": "one", "de": "eins", "en": "two"}',
        '{"translation": {"de": "eins", "en": "one", "en": ""}}',
        '{"source": "one", "source": "two", "target": "eins"}',
    ],
)
def test_json_key_that_occurs_twice_is_an_error(tmp_path: Path, line: str) -> None:
    key = "source" if "source" in line else "en"
    content = f'{{"en": "one", "de": "eins"}}\n{line}\n'
    assert problem(tmp_path / "my.jsonl", content).startswith(f"2: two keys '{key}'; ")


@pytest.mark.parametrize(
    ("suffix", "content"),
    [
        (".csv", '"x\ny",z\n1,2\n'),
        (".jsonl", '{"x\\ny": "1"}\n'),
        (".tmx", tmx(unit(("x&#10;y", "un"), ("en", "one")))),
    ],
)
def test_line_break_in_a_quoted_name_is_escaped(tmp_path: Path, suffix: str, content: str) -> None:
    assert r"x\ny" in problem(tmp_path / f"my{suffix}", content)


def test_other_json_keys_may_occur_twice(tmp_path: Path) -> None:
    content = '{"id": 1, "id": 2, "meta": {"a": 1, "a": 2}, "en": "one", "de": "eins"}'
    assert read(tmp_path / "my.jsonl", content) == [("one", "eins")]


def test_json_without_a_language_names_the_keys_it_has(tmp_path: Path) -> None:
    content = '{"en-GB": "one", "de-DE": "eins", "id": 5}\n{"fr": "deux"}\n'
    found = problem(tmp_path / "my.jsonl", content)
    assert found.startswith(" contains no en or de text (it has de-DE, en-GB, fr, id); ")


def test_side_without_any_text_is_an_error(tmp_path: Path) -> None:
    found = problem(tmp_path / "my.csv", "en,de\none,\ntwo,\n")
    assert found == " contains no de text; check the file and the two languages"


def test_unpaired_surrogate_in_json_is_an_error_unless_surrogateescape(tmp_path: Path) -> None:
    path = tmp_path / "my.jsonl"
    content = r'{"en": "\ud83d\ude00 \ud83d", "de": "x"}'
    assert problem(path, content).startswith('1: "en" contains an unpaired surrogate; ')
    (text,) = find_texts([path], "en", "de")
    assert list(text.pairs("surrogateescape")) == [("😀 \ud83d", "x")]


# --- TMX ------------------------------------------------------------------------------------------

NAMESPACE = '<tmx xmlns="http://www.lisa.org/tmx14" version="1.4">'
DOCTYPE = '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n'
ONE = unit(("en", "one"), ("de", "eins"))


@pytest.mark.parametrize(
    "content",
    [
        tmx(ONE),
        tmx(ONE, head=DOCTYPE),
        tmx(ONE, head='<!DOCTYPE tmx PUBLIC "-//LISA OSCAR:1998//DTD for TMX//EN" "tmx14.dtd">'),
        tmx(ONE, root=NAMESPACE),
        tmx(ONE.replace("xml:lang", "lang")),
        re.sub(r"<(/?)", r"<\1t:", tmx(ONE)).replace("<t:tmx", '<t:tmx xmlns:t="x"'),
        ('<?xml version="1.0" encoding="UTF-16"?>' + tmx(ONE)).encode("utf-16"),
        '<?xml version="1.0" encoding="windows-1252"?>' + tmx(ONE),
        tmx(f"<!-- a note --><tu><note>a note</note></tu>{ONE}"),
    ],
)
def test_tmx_variants_are_read(tmp_path: Path, content: str | bytes) -> None:
    assert read(tmp_path / "my.tmx", content) == [("one", "eins")]


def test_utf_16_tmx_keeps_its_code_points(tmp_path: Path) -> None:
    content = '<?xml version="1.0" encoding="UTF-16"?>' + DOCTYPE.split("\n")[1] + as_tmx(UNITS)
    assert read(tmp_path / "my.tmx.gz", content.encode("utf-16")) == UNITS


@pytest.mark.parametrize(
    ("segment", "text"),
    [
        ('a <bpt i="1">{\\b </bpt>bold<ept i="1">}</ept> word', "a bold word"),
        ("a<ph>&lt;b&gt;</ph>b<it>x</it>c<ut>y</ut>d", "abcd"),
        ("see<ph>note <sub>a footnote</sub> end</ph> there", "see there"),
        ("a<sub>b</sub>c<bpt/>d<ept/>", "acd"),
        ("a <hi>high<ph>x</ph> light</hi>!", "a high light!"),
        ("a <mrk>b <any>c</any> d</mrk> e", "a b c d e"),
        ("a<!-- note --> b<?go on?> c", "a b c"),
        ("a &amp; b &lt;c&gt; &#x200c;&#160;d", "a & b <c> \u200c\u00a0d"),
        ("<![CDATA[a < b]]> c", "a < b c"),
        ("  a  b  ", "  a  b  "),
        ("\n    a\n    <hi>b</hi>\u00a0\n  ", "a b\u00a0"),
        ("", ""),
    ],
)
def test_tmx_inline_tags_lose_their_code_and_keep_their_text(
    tmp_path: Path, segment: str, text: str
) -> None:
    content = tmx(unit(("en", segment), ("de", "x")) + ONE, root=NAMESPACE)
    assert read(tmp_path / "my.tmx", content) == [(text, "x"), ("one", "eins")]


@pytest.mark.parametrize(
    "tag",
    [
        '<ph type="lb"/>',
        "<ph>&lt;br/&gt;</ph>",
        "<it pos='begin'>&lt;w:br w:type='page'/&gt;</it>",
        "<ph>&lt;text:line-break/&gt;</ph>",
        "<ph>\\n</ph>",
        "<ph>\\line </ph>",
        "<ph>&#10;</ph>",
        " <ph type='lb'/>  <ph type='lb'/>",
        "&#13;",
    ],
)
def test_tmx_line_break_does_not_join_words(tmp_path: Path, tag: str) -> None:
    content = tmx(unit(("en", f"two{tag}words"), ("de", f"zwei Wörter{tag}")))
    assert read(tmp_path / "my.tmx", content) == [("two words", "zwei Wörter")]


def test_tmx_elements_may_be_nested_deeply(tmp_path: Path) -> None:
    depth = 100_000
    segment = f"{'<hi>' * depth}deep{'</hi>' * depth} text"
    content = tmx(unit(("en", segment), ("de", "x")))
    assert read(tmp_path / "my.tmx", content) == [("deep text", "x")]


def test_tmx_without_a_language_names_the_languages_it_has(tmp_path: Path) -> None:
    content = tmx(unit(("en-GB", "one"), ("fr", "un"), ("es-MX", "uno")) + unit(("fr", "deux")))
    found = problem(tmp_path / "my.tmx", content)
    assert found.startswith(" contains no de text (it has es-MX, fr); ")


def test_tmx_units_of_other_languages_are_skipped(tmp_path: Path) -> None:
    content = tmx(
        unit(("fr", "un"), ("de", "eins"), ("en", "one"))
        + unit(("fr", "deux"), ("es", "dos"))
        + unit(("fr", "trois"), ("de", "drei"))
        + unit(("en", "four"))
        + "<tu><tuv xml:lang='en'/><tuv><seg>no language</seg></tuv></tu>"
        + "<tu/>"
    )
    pairs = [("one", "eins"), ("", "drei"), ("four", ""), ("", "")]
    assert read(tmp_path / "my.tmx", content) == pairs
    french = [("un", ""), ("deux", "dos"), ("trois", "")]
    assert read(tmp_path / "my.tmx", content, "fr", "es") == french


@pytest.mark.parametrize(
    ("variants", "found"),
    [
        (["en-US", "de"], "en-US"),
        (["EN_us", "de-AT"], "EN_us"),
        (["en-US", "en-GB", "de"], "en-US"),
        (["en-US", "EN", "en-GB", "de"], "EN"),
        (["en-US", "en", "en", "de"], "en"),
        (["e", "en-x", "de"], "en-x"),
        (["fra", "eng", "deu"], "eng"),
    ],
)
def test_tmx_language_selects_the_exact_variant_or_the_first_similar_one(
    tmp_path: Path, variants: list[str], found: str
) -> None:
    content = tmx(unit(*((language, language) for language in variants)))
    assert read(tmp_path / "my.tmx", content) == [(found, variants[-1])]


def test_tmx_language_prefers_the_requested_region(tmp_path: Path) -> None:
    content = tmx(unit(("en", "any"), ("EN-gb", "British"), ("de", "x")) + unit(("en", "any")))
    assert read(tmp_path / "my.tmx", content, "en_GB", "de") == [("British", "x"), ("any", "")]


def test_tmx_regions_of_one_language_do_not_replace_each_other(tmp_path: Path) -> None:
    content = tmx(unit(("pt-PT", "autocarro"), ("pt-BR", "ônibus")) + unit(("pt-PT", "comboio")))
    pairs = [("ônibus", "autocarro"), ("", "comboio")]
    assert read(tmp_path / "my.tmx", content, "pt-BR", "pt-PT") == pairs


BOMB = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10 if n else "ha"}">' for n in range(10))


@pytest.mark.parametrize(
    "declared",
    [
        BOMB,
        '<!ENTITY a9 SYSTEM "file:///etc/hostname">',
        '<!ENTITY % a9 SYSTEM "http://localhost/x.dtd"> %a9;',
        '<!ENTITY a9 "harmless">',
    ],
    ids=["bomb", "external", "parameter", "harmless"],
)
def test_tmx_with_declared_entities_is_an_error(tmp_path: Path, declared: str) -> None:
    content = tmx(unit(("en", "&a9;"), ("de", "x")), head=f"<!DOCTYPE tmx [{declared}]>")
    found = problem(tmp_path / "my.tmx", content)
    assert found == " declares entities, which tfnmt does not expand; remove the DOCTYPE"


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (tmx("\n<tu>\n</body>"), 3),
        (tmx(ONE)[:-6], 5),
        (tmx(f"{ONE}\n&nbsp;", head=DOCTYPE), 8),
        (tmx("\n\x01"), 2),
        (tmx(ONE).encode() + b"\n\xff", 6),
        ("not XML", 1),
        ("", 1),
    ],
)
def test_malformed_xml_error_names_the_line(
    tmp_path: Path, content: str | bytes, line: int
) -> None:
    assert problem(tmp_path / "my.tmx", content).startswith(f"{line}: malformed XML (")


@pytest.mark.parametrize("encoding", ["gb2312", "none-such"])
def test_unsupported_xml_encoding_is_an_error(tmp_path: Path, encoding: str) -> None:
    content = f'<?xml version="1.0" encoding="{encoding}"?>' + tmx(ONE)
    found = problem(tmp_path / "my.tmx", content)
    assert found.startswith(" unsupported encoding (")


def test_large_tmx_needs_little_memory(tmp_path: Path) -> None:
    path = write(tmp_path / "my.tmx", tmx(ONE * 10_000, root=NAMESPACE))
    pairs = TMX(path, "en", "de").pairs()
    tracemalloc.start()
    try:
        assert sum(1 for _ in pairs) == 10_000
        assert tracemalloc.get_traced_memory()[1] < 1e6
    finally:
        tracemalloc.stop()
