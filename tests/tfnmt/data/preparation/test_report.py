import json
import re
from html.parser import HTMLParser
from pathlib import Path
from random import Random

import pytest

from tfnmt.config import Config, build_config
from tfnmt.data.corpora.corpus import Files
from tfnmt.data.corpora.formats import TSV
from tfnmt.data.corpora.text_files import Pair
from tfnmt.data.preparation.prepared import prepare
from tfnmt.data.preparation.report import (
    MAX_WORDS,
    SAMPLES,
    Report,
    Side,
    parse_report,
)

RULES = ("empty", "duplicates")


def new_report(corpus: str = "custom data") -> Report:
    report = Report(corpus, Side("en"), Side("de"))
    report.removed = dict.fromkeys(RULES, 0)
    return report


def numbered(count: int) -> list[Pair]:
    return [(f"source {number}", f"target {number}") for number in range(count)]


def test_parsed_report_writes_the_same_text() -> None:
    report = new_report()
    report.keep(numbered(30))
    report.remove("empty", ("caf\udce9 !", ""))
    assert parse_report(report.json()).json() == report.json()


# --- Counts ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cleaned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the prepared folder of 600 pairs. Three rules remove some of them."""
    folder = tmp_path_factory.mktemp("cleaned")
    random = Random(1)
    rows = []
    for number in range(600):
        words = " ".join(f"{random.choice('abcde')}{random.randrange(20)}" for _ in range(5))
        rows.append("\t" if number % 10 == 0 else f"{words}\t{words.upper()}")
        if number % 50 == 49:
            rows[-1] = "same\tsame" if number % 100 == 99 else rows[-2]
    (folder / "my.tsv").write_text("\n".join(rows) + "\n")
    config: Config = build_config(
        {
            "data": {"corpus": None, "train": [str(folder / "my.tsv")]},
            "cleaning": {"identical": True, "duplicates": True, "broken": True},
            "tokenizer": {"vocab_size": 300},
        }
    )
    corpus = Files({"train": (TSV(folder / "my.tsv", "en", "de"),)})
    return prepare(config, corpus, folder / "cache").folder


def test_report_counts_every_pair_as_kept_or_removed_by_one_rule(cleaned: Path) -> None:
    report = json.loads((cleaned / "report.json").read_text())
    assert report["removed"] == {
        "empty": 60,
        "broken": 0,
        "identical": 6,
        "duplicates": 6,
        "leakage": 0,
    }
    assert report["read"] == 600
    assert report["kept"] == 600 - 72
    for side in ("source", "target"):
        lines = (cleaned / f"train.{side}.txt").read_text().splitlines()
        assert len(lines) == report["kept"] == sum(report[side]["lengths"])
        assert report[side]["words"] == sum(len(line.split()) for line in lines)
        assert report[side]["characters"] == sum(map(len, lines))
        assert report["tokens"][side] > report[side]["words"]


def test_table_contains_the_counts_of_the_json_report(cleaned: Path) -> None:
    rows = [line.split() for line in (cleaned / "report.txt").read_text().splitlines()]
    assert rows[0] == ["pairs", "read", "600"]
    assert ["empty", "-60", "10.00%"] in rows
    assert ["broken", "-0", "0.00%"] in rows
    assert ["pairs", "kept", "528", "88.00%"] in rows
    tokens = json.loads((cleaned / "report.json").read_text())["tokens"]
    assert ["en", "tokens", f"{tokens['source']:,}"] in [row[:3] for row in rows]
    assert ["de", "tokens", f"{tokens['target']:,}"] in [row[:3] for row in rows]


def test_report_counts_each_side_separately() -> None:
    report = new_report()
    report.keep([("one two three", "eins"), ("four", "vier")])
    assert (report.kept, report.source.words, report.target.words) == (2, 4, 2)
    assert (report.source.characters, report.target.characters) == (17, 8)


def test_table_of_an_empty_report_has_no_division_by_zero() -> None:
    assert "0.00%" in new_report().table()


def test_table_formats_numbers_for_readers() -> None:
    report = new_report()
    report.read = 1_250_000
    report.removed["empty"] = 12_500
    report.keep([("a b c", "d")])
    report.tokens = {"source": 6, "target": 3}
    table = report.table()
    assert re.search(r"^pairs read +1,250,000$", table, re.M)
    assert re.search(r"^  empty +-12,500  1\.00%$", table, re.M)
    assert re.search(r"^en words +3  3\.0 per sentence$", table, re.M)
    assert re.search(r"^en tokens +6  2\.00 per word$", table, re.M)
    assert re.search(r"^de tokens +3  3\.00 per word$", table, re.M)


def test_table_reports_mixed_spaces_before_punctuation() -> None:
    report = Report("custom data", Side("en"), Side("fr"))
    report.keep([("Who ? Me :", "Qui ?"), ("12\xa0000", "Moi\xa0! « Toi\xa0»"), ("x", "Où\u202f?")])
    *_, line = report.table().splitlines()
    assert line.startswith(
        "fr: mixed spaces before punctuation (1 U+0020, 2 U+00A0, 1 U+202F); "
        "--set tokenizer.normalization=nfkc "
    )
    assert "en: mixed" not in report.table()


# --- Histograms and samples -----------------------------------------------------------------------


def test_histogram_counts_sentences_by_number_of_words() -> None:
    side = Side("en")
    side.add(["one", "one two", "uno dos", "x " * (MAX_WORDS - 1) + "x", "x " * 500 + "x"])
    assert len(side.lengths) == MAX_WORDS + 1
    counts = {words: count for words, count in enumerate(side.lengths) if count}
    assert counts == {1: 1, 2: 2, MAX_WORDS: 2}
    assert side.words == 1 + 2 + 2 + MAX_WORDS + 501


def test_sides_have_separate_histograms() -> None:
    report = new_report()
    report.source.add(["one"])
    assert sum(report.target.lengths) == 0


def test_all_pairs_of_a_small_corpus_are_samples() -> None:
    report = new_report()
    report.keep(numbered(SAMPLES))
    assert report.samples == numbered(SAMPLES)


def test_samples_depend_on_the_corpus_but_not_on_the_chunks() -> None:
    samples = []
    for chunk in (1, 33, 1000):
        report = new_report()
        for first in range(0, 1000, chunk):
            report.keep(numbered(1000)[first : first + chunk])
        samples.append(report.samples)
    assert samples[0] == samples[1] == samples[2]
    assert len(set(samples[0])) == SAMPLES
    assert set(samples[0]) <= set(numbered(1000))
    other = new_report("another corpus")
    other.keep(numbered(1000))
    assert other.samples != samples[0]


def test_kept_pairs_become_samples_with_equal_probability() -> None:
    quarters = [0] * 4
    for corpus in range(200):
        report = new_report(str(corpus))
        report.keep(numbered(100))
        for source, _ in report.samples:
            quarters[int(source.split()[1]) // 25] += 1
    assert sum(quarters) == 200 * SAMPLES
    assert min(quarters) > 0.8 * 50 * SAMPLES
    assert max(quarters) < 1.2 * 50 * SAMPLES


def test_removed_samples_are_the_first_pairs_of_each_rule() -> None:
    report = new_report()
    for pair in numbered(50):
        report.remove("duplicates", pair)
    report.remove("empty", ("", "x"))
    assert report.removed == {"empty": 1, "duplicates": 50}
    assert report.removed_samples == {"duplicates": numbered(SAMPLES), "empty": [("", "x")]}
    assert report.kept == 0


# --- As JSON and as a page ------------------------------------------------------------------------

HOSTILE = '<script src="http://evil.org/x.js">alert(1)</script> & \'"$title'
SIGNS = "مرحبا بالعالم 你好 \U0001f600 \u202e"


class Page(HTMLParser):
    """The tags of a page with their attributes, and the text by tag."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: dict[str, list[str]] = {}
        self._tag = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._tag = tag

    def handle_endtag(self, tag: str) -> None:
        self._tag = ""

    def handle_data(self, data: str) -> None:
        self.text.setdefault(self._tag, []).append(data)


@pytest.fixture
def hostile() -> Report:
    report = new_report(HOSTILE)
    report.read = 3
    report.keep([(HOSTILE, SIGNS), ("a", "b")])
    report.remove("empty", (HOSTILE, ""))
    return report


def test_json_report_contains_all_fields_unchanged(hostile: Report) -> None:
    parsed = json.loads(hostile.json())
    assert parsed["corpus"] == HOSTILE
    assert parsed["samples"] == [[HOSTILE, SIGNS], ["a", "b"]]
    assert parsed["removed_samples"] == {"empty": [[HOSTILE, ""]]}
    assert parsed["removed"] == {"empty": 1, "duplicates": 0}
    assert parsed["source"]["lengths"] == hostile.source.lengths
    assert set(parsed) == {
        "corpus",
        "source",
        "target",
        "read",
        "kept",
        "removed",
        "samples",
        "removed_samples",
        "tokens",
    }
    assert SIGNS in hostile.json()  # not escaped, so people can read it


def test_page_is_self_contained(hostile: Report) -> None:
    tags = Page(hostile.page()).tags
    text_tags = {"h1", "h2", "h3", "pre", "table", "tr", "td"}
    other_tags = {"html", "meta", "title", "style", "svg", "rect", "text"}
    assert {tag for tag, _ in tags} <= text_tags | other_tags
    names = {name for _, attributes in tags for name in attributes}
    assert not [name for name in names if name in ("src", "href", "srcset") or name[:2] == "on"]
    assert "url(" not in hostile.page()
    assert "@import" not in hostile.page()
    harmless = new_report()
    harmless.keep(numbered(20))
    assert "http" not in harmless.page()


def test_page_escapes_text_and_names(hostile: Report) -> None:
    page = Page(hostile.page())
    assert page.text["h1"][0].strip() == f"{HOSTILE} en-de"
    assert hostile.page().count("&lt;script") == 4  # title, heading, kept, removed
    assert page.text["td"] == [HOSTILE, SIGNS, "a", "b", HOSTILE]
    assert page.text["pre"] == [hostile.table()]


def test_page_escapes_languages() -> None:
    report = Report("x", Side("<b>"), Side("de"))
    assert "<b>" not in report.page()


def test_page_cells_detect_the_text_direction(hostile: Report) -> None:
    cells = [attributes for tag, attributes in Page(hostile.page()).tags if tag == "td"]
    assert len(cells) == 6
    assert all(cell == {"dir": "auto"} for cell in cells)


def test_page_without_removed_pairs_says_none() -> None:
    assert "<p>none</p>" in new_report().page()
    report = new_report()
    report.remove("empty", ("", "x"))
    assert "<p>none</p>" not in report.page()
    assert "<h3>empty</h3>" in report.page()


def test_page_bars_are_proportional_to_their_counts() -> None:
    report = new_report()
    report.keep([("a", "b")] * 4 + [("a b", "b")])
    bars = [attributes for tag, attributes in Page(report.page()).tags if tag == "rect"]
    assert len(bars) == 2 * (MAX_WORDS + 1)
    heights = [float(str(bar["height"])) for bar in bars[: MAX_WORDS + 1]]
    assert heights[:4] == [0, 100, 25, 0]
    assert all(float(str(bar["y"])) + float(str(bar["height"])) == 100 for bar in bars)
    assert "<title>1 words: 4</title>" in report.page()
    assert f">{MAX_WORDS}+</text>" in report.page()


def test_report_of_invalid_utf_8_is_written_with_escapes(tmp_path: Path) -> None:
    report = new_report()
    report.read = 1
    report.remove("empty", ("caf\udce9", ""))
    report.write(tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"report.txt", "report.json", "report.html"}
    assert "caf\\udce9" in (tmp_path / "report.html").read_text("utf-8")
    parsed = json.loads((tmp_path / "report.json").read_text("utf-8"))
    assert parsed["removed_samples"] == {"empty": [["caf\udce9", ""]]}
    assert (tmp_path / "report.txt").read_text("utf-8") == report.table()
