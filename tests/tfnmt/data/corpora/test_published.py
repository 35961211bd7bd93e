import html
import io
from dataclasses import replace
from pathlib import Path

from tests.published import small_corpus
from tfnmt.data.corpora.published import (
    Reader,
    every_23rd,
    every_100th_english,
    lines,
    segments,
    talks,
)

# --- Readers --------------------------------------------------------------------------------------


def read(reader: Reader, text: str, language: str = "en") -> list[str]:
    """Return the sentences that a reader finds in a member with this text."""
    return [line.decode() for line in reader(io.BytesIO(text.encode()), language)]


def test_lines_reader_leaves_sentences_unchanged() -> None:
    text = "one\n\n <two> &amp; \u2028 2½\r\n\tthree\u00a0\nfour"
    assert read(lines, text) == ["one", "", " <two> &amp; \u2028 2½", "\tthree\u00a0", "four"]


def test_segments_reader_reads_seg_elements() -> None:
    text = """<?xml version="1.0" encoding="UTF-8"?>
<refset setid="newstest2014" srclang="any" trglang="de">
<doc sysid="ref" docid="1" genre="news" origlang="de">
<title>No sentence</title>
<p>
<seg id="1">Orlando Bloom &amp; Miranda Kerr: &quot;Ja&quot; &#39;und&#x27; 1 &lt; 2</seg>
<seg id="2"> Käse \u2028 &uuml;ber </seg>\r
  <seg id="3"></seg>
<hl><seg id="4">A <b>tag</b></seg></hl>
</p>
</doc>
</refset>
"""
    assert read(segments, text) == [
        "Orlando Bloom & Miranda Kerr: \"Ja\" 'und' 1 < 2",
        "Käse \u2028 über",
        "",
        "A <b>tag</b>",
    ]


def test_segments_reader_unescapes_html() -> None:
    sentence = "\"1 < 2 & 3 > 2\", so 'it' is: &amp;"
    assert read(segments, f"<seg id='1'>{html.escape(sentence)}</seg>\n") == [sentence]


def test_talks_reader_reads_lines_titles_and_descriptions() -> None:
    text = """<url>http://www.ted.com/talks/lang/de/x.html</url>
<keywords>talks, science</keywords>
<speaker>David Gallo</speaker>
<talkid>343</talkid>
<title>David Gallo: Unterwasser</title>
<description>TED Talk Subtitles: 1 < 2.</description>
<reviewer href="http://x">A</reviewer>
<translator>B</translator>
 Vielen Dank. \r

Das war's </b> nicht.
<title></title>
a < b
</transcript>
</doc>
"""
    assert read(talks, text) == [
        "David Gallo: Unterwasser",
        "TED Talk Subtitles: 1 < 2.",
        "Vielen Dank.",
        "",
        "Das war's </b> nicht.",
        "",
        "a < b",
    ]


def test_every_23rd_selects_the_held_out_sentences_or_the_others() -> None:
    text = "".join(f"<url>{number}</url>\n{number}\n" for number in range(1, 101))
    held_out = read(every_23rd(talks, held_out=True), text)
    assert held_out == ["23", "46", "69", "92"]
    kept = read(every_23rd(talks, held_out=False), text)
    assert kept == [str(number) for number in range(1, 101) if number % 23]


def test_every_100th_english_selects_each_sentence_once() -> None:
    rows = [
        f"Sentence {number // 3}.\tSatz {number}.\tCC-BY 2.0 (France) #{number}\n"
        for number in range(6000)
    ]
    selections = {}
    for held_out in (True, False):
        reader = every_100th_english(held_out)
        english, german = read(reader, "".join(rows)), read(reader, "".join(rows), "de")
        assert len(english) == len(german)
        selections[held_out] = list(zip(english, german, strict=True))
    everything = [(row.split("\t")[0], row.split("\t")[1]) for row in rows]
    assert sorted(selections[True] + selections[False]) == sorted(everything)
    kept = set(selections[False])
    assert selections[False] == [pair for pair in everything if pair in kept]  # in order
    sources = {held_out: {pair[0] for pair in pairs} for held_out, pairs in selections.items()}
    assert sources[True].isdisjoint(sources[False])
    assert 10 <= len(sources[True]) <= 30  # of 2000


def test_every_100th_english_selects_the_same_rows_in_every_language() -> None:
    texts = [f"{number}\t{text}\tby\n" for number in range(300) for text in ("eins", "un")]
    reader = every_100th_english(held_out=True)
    german, french = (read(reader, "".join(texts[side::2])) for side in (0, 1))
    assert german == french != []


# --- Names ----------------------------------------------------------------------------------------

URL = "http://127.0.0.1"


def test_pair_has_the_same_name_in_both_directions() -> None:
    entry = small_corpus(URL)
    assert entry.directions() == {("de", "en"), ("en", "de"), ("fr", "en"), ("en", "fr")}
    for pair in (("de", "en"), ("en", "de")):
        assert entry.pair(*pair) == "de-en"
        assert entry.path(*pair, Path("data")) == Path("data/small/de-en")
    assert replace(entry, pair_folders=False).path("de", "en", Path("data")) == Path("data/small")


def test_direction_decides_which_file_is_the_source() -> None:
    files = small_corpus(URL).open("en", "de", Path("data")).files("train")
    assert files == (Path("data/small/de-en/train.en"), Path("data/small/de-en/train.de"))


def test_splits_exclude_those_without_parts_for_the_pair() -> None:
    entry = small_corpus(URL)
    only_german = replace(entry, splits={"train": entry.splits["train"][1:]})
    assert only_german.open("de", "en", Path()).splits == ("train",)
    assert only_german.open("fr", "en", Path()).splits == ()


def test_downloads_have_the_checksums_of_their_archives() -> None:
    entry = replace(small_corpus(URL), checksums={"news.zip": "md5:0"})
    found = entry.downloads("train", "de", "en")
    checksums = {name: download.checksum for name, download in found.items()}
    assert checksums == {"talks-deen.tgz": None, "news.zip": "md5:0"}
