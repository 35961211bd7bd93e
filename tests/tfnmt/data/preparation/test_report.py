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
from tfnmt.data.preparation.report import LONGEST, SAMPLES, Report, Side

RULES = ("empty", "duplicates")


def new_report(corpus: str = "own text") -> Report:
    report = Report(corpus, Side("en"), Side("de"))
    report.removed = dict.fromkeys(RULES, 0)
    return report


def numbered(count: int) -> list[Pair]:
    return [(f"source {number}", f"target {number}") for number in range(count)]


# --- Counts ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cleaned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The prepared folder of 600 pairs of which three rules remove some."""
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


def test_every_pair_read_is_kept_or_removed_by_one_rule(cleaned: Path) -> None:
    report = json.loads((cleaned / "report.json").read_text())
    assert report["removed"] == {
        "empty": 60, "broken": 0, "identical": 6, "duplicates": 6, "leakage": 0,
    }  # fmt: skip
    assert report["read"] == 600
    assert report["kept"] == 600 - 72
    for side in ("source", "target"):
        lines = (cleaned / f"train.{side}.txt").read_text().splitlines()
        assert len(lines) == report["kept"] == sum(report[side]["lengths"])
        assert report[side]["words"] == sum(len(line.split()) for line in lines)
        assert report[side]["characters"] == sum(map(len, lines))
        assert report["pieces"][side] > report[side]["words"]


def test_the_table_says_the_same(cleaned: Path) -> None:
    rows = [line.split() for line in (cleaned / "report.txt").read_text().splitlines()]
    assert rows[0] == ["pairs", "read", "600"]
    assert ["empty", "-60", "10.00%"] in rows
    assert ["broken", "-0", "0.00%"] in rows
    assert ["pairs", "kept", "528", "88.00%"] in rows
    pieces = json.loads((cleaned / "report.json").read_text())["pieces"]
    assert ["en", "pieces", f"{pieces['source']:,}"] in [row[:3] for row in rows]
    assert ["de", "pieces", f"{pieces['target']:,}"] in [row[:3] for row in rows]


def test_sides_are_told_apart() -> None:
    report = new_report()
    report.keep([("one two three", "eins"), ("four", "vier")])
    assert (report.kept, report.source.words, report.target.words) == (2, 4, 2)
    assert (report.source.characters, report.target.characters) == (17, 8)


def test_a_table_of_nothing_divides_by_nothing() -> None:
    assert "0.00%" in new_report().table()


def test_the_table_is_of_numbers_that_people_read() -> None:
    report = new_report()
    report.read = 1_250_000
    report.removed["empty"] = 12_500
    report.keep([("a b c", "d")])
    report.pieces = {"source": 6, "target": 3}
    table = report.table()
    assert re.search(r"^pairs read +1,250,000$", table, re.M)
    assert re.search(r"^  empty +-12,500  1\.00%$", table, re.M)
    assert re.search(r"^en words +3  3\.0 a sentence$", table, re.M)
    assert re.search(r"^en pieces +6  2\.00 a word$", table, re.M)
    assert re.search(r"^de pieces +3  3\.00 a word$", table, re.M)


# --- Histograms and samples -----------------------------------------------------------------------


def test_a_histogram_counts_sentences_by_their_words() -> None:
    side = Side("en")
    side.add(["one", "one two", "uno dos", "x " * (LONGEST - 1) + "x", "x " * 500 + "x"])
    assert len(side.lengths) == LONGEST + 1
    assert {words: count for words, count in enumerate(side.lengths) if count} == {
        1: 1, 2: 2, LONGEST: 2,
    }  # fmt: skip
    assert side.words == 1 + 2 + 2 + LONGEST + 501


def test_sides_do_not_share_their_histograms() -> None:
    report = new_report()
    report.source.add(["one"])
    assert sum(report.target.lengths) == 0


def test_of_few_pairs_all_are_samples() -> None:
    report = new_report()
    report.keep(numbered(SAMPLES))
    assert report.samples == numbered(SAMPLES)


def test_samples_are_seeded_and_do_not_depend_on_the_pieces() -> None:
    samples = []
    for cut in (1, 33, 1000):
        report = new_report()
        for first in range(0, 1000, cut):
            report.keep(numbered(1000)[first : first + cut])
        samples.append(report.samples)
    assert samples[0] == samples[1] == samples[2]
    assert len(set(samples[0])) == SAMPLES
    assert set(samples[0]) <= set(numbered(1000))
    other = new_report("another corpus")
    other.keep(numbered(1000))
    assert other.samples != samples[0]


def test_each_kept_pair_has_the_same_chance_to_be_a_sample() -> None:
    quarters = [0] * 4
    for corpus in range(200):
        report = new_report(str(corpus))
        report.keep(numbered(100))
        for source, _ in report.samples:
            quarters[int(source.split()[1]) // 25] += 1
    assert sum(quarters) == 200 * SAMPLES
    assert min(quarters) > 0.8 * 50 * SAMPLES
    assert max(quarters) < 1.2 * 50 * SAMPLES


def test_of_each_rule_the_first_pairs_are_samples() -> None:
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
    """What a page is made of."""

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


def test_json_reads_back(hostile: Report) -> None:
    back = json.loads(hostile.json())
    assert back["corpus"] == HOSTILE
    assert back["samples"] == [[HOSTILE, SIGNS], ["a", "b"]]
    assert back["removed_samples"] == {"empty": [[HOSTILE, ""]]}
    assert back["removed"] == {"empty": 1, "duplicates": 0}
    assert back["source"]["lengths"] == hostile.source.lengths
    assert set(back) == {"corpus", "source", "target", "read", "kept", "removed", "samples",
                         "removed_samples", "pieces"}  # fmt: skip
    assert SIGNS in hostile.json()  # readable as it is


def test_the_page_needs_nothing_beside_it(hostile: Report) -> None:
    tags = Page(hostile.page()).tags
    assert {tag for tag, _ in tags} <= {
        "html", "meta", "title", "style", "h1", "h2", "h3", "pre", "svg", "rect", "text", "table",
        "tr", "td",
    }  # fmt: skip
    names = {name for _, attributes in tags for name in attributes}
    assert not [name for name in names if name in ("src", "href", "srcset") or name[:2] == "on"]
    assert "url(" not in hostile.page()
    assert "@import" not in hostile.page()
    harmless = new_report()
    harmless.keep(numbered(20))
    assert "http" not in harmless.page()


def test_text_and_names_are_escaped(hostile: Report) -> None:
    page = Page(hostile.page())
    assert page.text["h1"][0].strip() == f"{HOSTILE} en-de"
    assert hostile.page().count("&lt;script") == 4  # title, heading, kept, left out
    assert page.text["td"] == [HOSTILE, SIGNS, "a", "b", HOSTILE]
    assert page.text["pre"] == [hostile.table()]


def test_a_language_is_escaped_too() -> None:
    report = Report("x", Side("<b>"), Side("de"))
    assert "<b>" not in report.page()


def test_text_has_its_own_direction(hostile: Report) -> None:
    cells = [attributes for tag, attributes in Page(hostile.page()).tags if tag == "td"]
    assert len(cells) == 6
    assert all(cell == {"dir": "auto"} for cell in cells)


def test_a_page_with_nothing_left_out_says_so() -> None:
    assert "<p>none</p>" in new_report().page()
    report = new_report()
    report.remove("empty", ("", "x"))
    assert "<p>none</p>" not in report.page()
    assert "<h3>empty</h3>" in report.page()


def test_the_bars_are_as_tall_as_their_counts() -> None:
    report = new_report()
    report.keep([("a", "b")] * 4 + [("a b", "b")])
    bars = [attributes for tag, attributes in Page(report.page()).tags if tag == "rect"]
    assert len(bars) == 2 * (LONGEST + 1)
    heights = [float(str(bar["height"])) for bar in bars[: LONGEST + 1]]
    assert heights[:4] == [0, 100, 25, 0]
    assert all(float(str(bar["y"])) + float(str(bar["height"])) == 100 for bar in bars)
    assert "<title>1 words: 4</title>" in report.page()
    assert f">{LONGEST}+</text>" in report.page()


def test_bytes_that_are_not_utf_8_can_be_written(tmp_path: Path) -> None:
    report = new_report()
    report.read = 1
    report.remove("empty", ("caf\udce9", ""))
    report.write(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        "report.txt", "report.json", "report.html",
    }  # fmt: skip
    assert "caf\\udce9" in (tmp_path / "report.html").read_text("utf-8")
    back = json.loads((tmp_path / "report.json").read_text("utf-8"))
    assert back["removed_samples"] == {"empty": [["caf\udce9", ""]]}
    assert (tmp_path / "report.txt").read_text("utf-8") == report.table()
