"""Cleaning the training text: the kept pairs as text, the others as rejected, and a report."""

import gzip
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import IO, TextIO

from tfnmt.config import Config
from tfnmt.data.corpora.corpus import Corpus
from tfnmt.data.corpora.text_files import Pair
from tfnmt.data.preparation.cleaning import Rule, make_rules, violated_rule
from tfnmt.data.preparation.encoding import CHUNK, text_path
from tfnmt.data.preparation.report import Report, Side
from tfnmt.data.preparation.storage import FlatWriter
from tfnmt.errors import UserError
from tfnmt.progress import log, progress_bar

Writers = tuple[FlatWriter, FlatWriter]
"""Of the source and of the target."""

CleanDirection = Callable[[Path, Config, Corpus], Report]
"""(folder of the report, configuration of the direction, its corpus) -> the report."""


def clean(folder: Path, config: Config, corpora: Mapping[str, Corpus]) -> dict[str, Report]:
    """Write the pairs that violate no rule as text, and the others as rejected.

    Returns:
        The report of each direction.
    """
    with (
        FlatWriter(text_path(folder, "source")) as source,
        FlatWriter(text_path(folder, "target")) as target,
    ):
        clean_one = partial(_clean_direction, writers=(source, target))
        return clean_directions(folder, config, corpora, clean_one)


def clean_directions(
    folder: Path, config: Config, corpora: Mapping[str, Corpus], clean_one: CleanDirection
) -> dict[str, Report]:
    """Clean each direction, and log its removals.

    Returns:
        The report of each direction.
    """
    reports = {}
    for direction, corpus in corpora.items():
        own = report_folder(folder, direction, corpora)
        own.mkdir(exist_ok=True)
        section = config.data.of_direction(direction)
        report = clean_one(own, config.model_copy(update={"data": section}), corpus)
        _report_removals(report, direction if len(corpora) > 1 else None)
        _report_spaces(report, config)
        reports[direction] = report
    return reports


def report_folder(folder: Path, direction: str, directions: Collection[str]) -> Path:
    """Return the folder of a report: its own if there are several."""
    return folder / direction if len(directions) > 1 else folder


def _report_removals(report: Report, direction: str | None) -> None:
    """Log the number of removed pairs. Raise a UserError if no pair is left."""
    removals = ", ".join(f"{count:,} {rule}" for rule, count in report.removed.items() if count)
    if report.kept == 0:
        raise UserError(
            f"data.train: cleaning removed all {report.read:,} training pairs"
            f"{f' of {direction}' if direction else ''} ({removals or 'there is no text'}); check "
            "the text and the section cleaning"
        )
    if report.kept < report.read:
        place = f"{direction}: " if direction else ""
        log(f"{place}{report.kept:,} of {report.read:,} pairs kept; removed: {removals}")


def _report_spaces(report: Report, config: Config) -> None:
    """Log languages with mixed spaces, unless the tokenizer makes them equal."""
    if config.tokenizer.normalization != "nfkc":
        for line in report.mixed_spaces():
            log(line)


def _clean_direction(folder: Path, config: Config, corpus: Corpus, writers: Writers) -> Report:
    """Write the pairs of a direction that violate no rule, and the others as rejected."""
    data = config.data
    rules = make_rules(config.cleaning, (data.source, data.target), held_out(config, corpus))
    report = new_report(config)
    with rejected_writer(folder) as rejected:
        for chunk in training_pairs(config, corpus, CHUNK):
            kept = list(_filter(chunk, rules, report, rejected))
            report.keep(kept)
            write_pairs(writers, kept)
    return report


def new_report(config: Config) -> Report:
    """Return an empty report of a direction."""
    data, cleaning = config.data, config.cleaning
    report = Report(data.corpus or "custom data", Side(data.source), Side(data.target))
    rules = make_rules(cleaning, (data.source, data.target), ())
    report.removed = {rule.name: 0 for rule in rules}
    return report


def training_pairs(config: Config, corpus: Corpus, size: int) -> Iterator[list[Pair]]:
    """Yield the training pairs in groups of a size, while a progress bar is shown."""
    errors = "surrogateescape" if config.cleaning.broken else "strict"
    text = islice(corpus.pairs("train", errors), config.data.max_pairs)
    pairs = progress_bar(text, "reading", "pairs", config.data.max_pairs)
    while group := list(islice(pairs, size)):
        yield group


def held_out(config: Config, corpus: Corpus) -> set[Pair]:
    """Return the pairs of the held-out splits, if the leakage rule is enabled."""
    if not config.cleaning.leakage:
        return set()
    return {pair for split in corpus.held_out for pair in corpus.pairs(split)}


def _filter(
    pairs: Iterable[Pair], rules: list[Rule], report: Report, rejected: IO[str]
) -> Iterator[Pair]:
    """Yield the pairs that violate no rule. Count and record the others."""
    for pair in pairs:
        report.read += 1
        rule = violated_rule(rules, pair)
        if rule is None:
            yield pair
        else:
            report.remove(rule, pair)
            rejected.write(rejected_line(rule, pair))


def rejected_line(rule: str, pair: Pair) -> str:
    """Return the line of a removed pair."""
    return "\t".join((rule, *(side.replace("\t", " ") for side in pair))) + "\n"


def rejected_writer(folder: Path) -> TextIO:
    """Open rejected.tsv.gz. It has no date, so that the same text gives the same file."""
    compressed = gzip.GzipFile(folder / "rejected.tsv.gz", "wb", compresslevel=6, mtime=0)
    return TextIOWrapper(compressed, encoding="utf-8", errors="backslashreplace")


def write_pairs(writers: Writers, pairs: list[Pair]) -> None:
    """Write both sides of some pairs."""
    for side, writer in enumerate(writers):
        _write_lines(writer, [pair[side] for pair in pairs])


def _write_lines(writer: FlatWriter, lines: list[str]) -> None:
    try:
        encoded = [f"{line}\n".encode() for line in lines]
    except UnicodeEncodeError as error:  # JSON can contain unpaired surrogates
        raise UserError(
            f"data.train: {error.object[:60]!r} contains an unpaired surrogate; fix it, or remove "
            "such pairs with --set cleaning.broken=true"
        ) from error
    writer.write(b"".join(encoded), map(len, encoded))
