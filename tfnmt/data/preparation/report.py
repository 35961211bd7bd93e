"""The report of a prepared corpus: counts, lengths and samples, as JSON, table and HTML page."""

import html
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from string import Template

from tfnmt.data.corpora.text_files import Pair

SAMPLES = 10
"""Number of kept pairs shown, and of the first removed pairs of every rule."""

MAX_WORDS = 100
"""Words of the last bar of a histogram, which includes all longer sentences."""

SPACE_BEFORE_PUNCTUATION = re.compile(r"[ \u00a0\u202f](?=[?!:;»])")
"""Spaces that French writes before these marks: breaking, no-break and narrow no-break ones."""


@dataclass
class Side:
    """One language of the kept pairs."""

    language: str
    words: int = 0  # separated by spaces
    characters: int = 0
    lengths: list[int] = field(default_factory=lambda: [0] * (MAX_WORDS + 1))  # sentences by words
    spaces: dict[str, int] = field(default_factory=dict)  # before punctuation, such as U+00A0

    def add(self, lines: Sequence[str]) -> None:
        """Count sentences."""
        self.characters += sum(map(len, lines))
        for line in lines:
            words = line.count(" ") + 1
            self.words += words
            self.lengths[min(words, MAX_WORDS)] += 1
            for space in SPACE_BEFORE_PUNCTUATION.findall(line):
                kind = f"U+{ord(space):04X}"
                self.spaces[kind] = self.spaces.get(kind, 0) + 1

    def merge(self, other: "Side") -> None:
        """Add the counts of the sentences that follow."""
        self.words += other.words
        self.characters += other.characters
        self.lengths = [sum(counts) for counts in zip(self.lengths, other.lengths, strict=True)]
        for kind, count in other.spaces.items():
            self.spaces[kind] = self.spaces.get(kind, 0) + count


@dataclass
class Report:
    """Counts of cleaning. Every pair read was either kept or removed by one rule."""

    corpus: str
    source: Side
    target: Side
    read: int = 0
    kept: int = 0
    removed: dict[str, int] = field(default_factory=dict)  # by rule, zeros included
    samples: list[Pair] = field(default_factory=list)
    removed_samples: dict[str, list[Pair]] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)  # of each side, EOS included

    def __post_init__(self) -> None:
        self._random = Random(self.corpus)

    def keep(self, pairs: Sequence[Pair]) -> None:
        """Count kept pairs. Each has the same probability to become a sample."""
        self._sample(len(pairs), pairs.__getitem__)
        self.source.add([source for source, _ in pairs])
        self.target.add([target for _, target in pairs])

    def merge(self, other: "Report", kept_pair: Callable[[int], Pair]) -> None:
        """Add the report of the pairs that follow. The result is that of one report.

        Args:
            other: A report without samples of kept pairs.
            kept_pair: Returns a pair that it kept, by its number.
        """
        self.read += other.read
        for rule, count in other.removed.items():
            self.removed[rule] += count
        for rule, pairs in other.removed_samples.items():
            examples = self.removed_samples.setdefault(rule, [])
            examples += pairs[: SAMPLES - len(examples)]
        self._sample(other.kept, kept_pair)
        self.source.merge(other.source)
        self.target.merge(other.target)

    def _sample(self, count: int, pair: Callable[[int], Pair]) -> None:
        for number in range(count):
            self.kept += 1
            if len(self.samples) < SAMPLES:
                self.samples.append(pair(number))
            elif (place := int(self._random.random() * self.kept)) < SAMPLES:
                self.samples[place] = pair(number)

    def remove(self, rule: str, pair: Pair) -> None:
        """Count a pair that a rule removed."""
        self.removed[rule] += 1
        examples = self.removed_samples.setdefault(rule, [])
        if len(examples) < SAMPLES:
            examples.append(pair)

    def table(self) -> str:
        """Return a readable summary of a few lines."""
        rows = [("pairs read", f"{self.read:,}", "")]
        rows += [
            (f"  {rule}", f"-{count:,}", f"{count / max(self.read, 1):.2%}")
            for rule, count in self.removed.items()
        ]
        rows.append(("pairs kept", f"{self.kept:,}", f"{self.kept / max(self.read, 1):.2%}"))
        for name, side in (("source", self.source), ("target", self.target)):
            tokens = self.tokens.get(name, 0)
            average = side.words / max(self.kept, 1)
            per_word = tokens / max(side.words, 1)
            words = (f"{side.language} words", f"{side.words:,}", f"{average:.1f} per sentence")
            rows += [words, (f"{side.language} tokens", f"{tokens:,}", f"{per_word:.2f} per word")]
        lines = (f"{name:<18}{count:>16}  {share}".rstrip() for name, count, share in rows)
        return "\n".join([*lines, *self.mixed_spaces()])

    def mixed_spaces(self) -> Iterator[str]:
        """Yield a line for each language with several kinds of spaces before punctuation."""
        for side in (self.source, self.target):
            if len(side.spaces) > 1:
                counts = ", ".join(
                    f"{count:,} {kind}" for kind, count in sorted(side.spaces.items())
                )
                yield (
                    f"{side.language}: mixed spaces before punctuation ({counts}); "
                    "--set tokenizer.normalization=nfkc makes them U+0020"
                )

    def json(self) -> str:
        """Return everything as JSON."""
        return json.dumps(asdict(self), ensure_ascii=False, indent=1) + "\n"

    def page(self) -> str:
        """Return a self-contained HTML page: table, histograms and samples."""
        return _PAGE.substitute(
            title=html.escape(f"{self.corpus} {self.source.language}-{self.target.language}"),
            table=html.escape(self.table()),
            source=_histogram(self.source),
            target=_histogram(self.target),
            kept=_pairs_table(self.samples),
            removed="\n".join(
                f"<h3>{html.escape(rule)}</h3>{_pairs_table(pairs)}"
                for rule, pairs in self.removed_samples.items()
            )
            or "<p>none</p>",
        )

    def write(self, folder: Path) -> None:
        """Write report.json, report.txt and report.html."""
        (folder / "report.txt").write_text(self.table(), encoding="utf-8")
        (folder / "report.json").write_text(_printable(self.json()), encoding="utf-8")
        (folder / "report.html").write_text(_printable(self.page()), encoding="utf-8")


def parse_report(text: str) -> Report:
    """Return the report with some JSON, written by `Report.json`."""
    fields = json.loads(text)
    source, target = (Side(**fields.pop(name)) for name in ("source", "target"))
    return Report(source=source, target=target, **fields)


def _printable(text: str) -> str:
    """Escape unpaired surrogates, which stand for bytes that are not UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


def _histogram(side: Side) -> str:
    """Return a histogram of sentence lengths in words as SVG."""
    tallest = max(1, *side.lengths)
    bars = "".join(
        f'<rect x="{6 * length}" y="{100 - 100 * count / tallest:.1f}" width="5" '
        f'height="{100 * count / tallest:.1f}"><title>{length} words: {count:,}</title></rect>'
        for length, count in enumerate(side.lengths)
    )
    marks = "".join(
        f'<text x="{6 * length}" y="114">{length}{"+" if length == MAX_WORDS else ""}</text>'
        for length in range(0, MAX_WORDS + 1, 10)
    )
    return (
        f"<h3>{html.escape(side.language)}: words per sentence</h3>"
        f'<svg viewBox="0 0 {6 * MAX_WORDS + 30} 120">{bars}{marks}</svg>'
    )


def _pairs_table(pairs: Sequence[Pair]) -> str:
    cells = ([f'<td dir="auto">{html.escape(side)}</td>' for side in pair] for pair in pairs)
    rows = "".join(f"<tr>{''.join(pair)}</tr>" for pair in cells)
    return f"<table>{rows}</table>"


_PAGE = Template("""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>$title</title>
<style>
body { font: 15px/1.5 sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
svg { width: 100%; fill: steelblue; }
svg text { font-size: 9px; fill: gray; text-anchor: middle; }
table { border-collapse: collapse; width: 100%; }
td { border-top: 1px solid silver; padding: .3rem .6rem; vertical-align: top; width: 50%; }
</style>
<h1>$title</h1>
<pre>$table</pre>
<h2>Lengths</h2>
$source
$target
<h2>Kept pairs</h2>
$kept
<h2>Removed pairs</h2>
$removed
</html>
""")
