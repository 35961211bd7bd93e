"""Published corpora: their archives, the members with the text, and readers for their formats."""

import html
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from tfnmt.data.corpora.corpus import Files
from tfnmt.data.corpora.downloads import Download
from tfnmt.data.corpora.formats import Aligned

Reader = Callable[[Iterable[bytes], str], Iterator[bytes]]
"""Maps the lines of a member and a language to sentences without line ends."""


# --- Readers --------------------------------------------------------------------------------------


def lines(stream: Iterable[bytes], language: str) -> Iterator[bytes]:
    """Read plain text, one sentence per line."""
    del language
    return (line.rstrip(b"\r\n") for line in stream)


def segments(stream: Iterable[bytes], language: str) -> Iterator[bytes]:
    """Read test sets of WMT and IWSLT: `<seg id="1">a sentence</seg>`, one per line."""
    del language
    for line in stream:
        found = re.search(rb"<seg[^>]*>(.*)</seg>", line)
        if found:
            yield html.unescape(found[1].decode().strip()).encode()


def talks(stream: Iterable[bytes], language: str) -> Iterator[bytes]:
    """Read IWSLT training text: lines, titles and descriptions. Other tags contain no sentences."""
    del language
    for line in stream:
        found = re.fullmatch(rb"(?:<(?:title|description)>|(?!<))(.*?)(?:</\w+>)?\s*", line)
        if found:
            yield found[1].strip()


def every_23rd(read: Reader, held_out: bool) -> Reader:
    """Select every 23rd sentence, or all others, as fairseq splits IWSLT 2014 for validation."""

    def select(stream: Iterable[bytes], language: str) -> Iterator[bytes]:
        for number, line in enumerate(read(stream, language), start=1):
            if (number % 23 == 0) == held_out:
                yield line

    return select


def every_100th_english(held_out: bool) -> Reader:
    """Select the rows of every 100th English sentence of Tatoeba, or all others.

    The columns are English, other language, attribution. The checksum of the English sentence
    decides, so no sentence is in both selections.
    """

    def select(stream: Iterable[bytes], language: str) -> Iterator[bytes]:
        for line in stream:
            english, other = line.rstrip(b"\r\n").split(b"\t")[:2]
            if (crc32(english) % 100 == 0) == held_out:
                yield english if language == "en" else other

    return select


# --- Entries --------------------------------------------------------------------------------------


class Part(NamedTuple):
    """A part of a split: a member of an archive in each language.

    `url` and `member` are templates with {language}, {pair} (`de-en`), {joined} (`deen`),
    {slashed} (`de/en`) and {alpha3} (three letters of the language that is not English).
    """

    url: str
    member: str
    size: int  # approximate bytes of the archive
    read: Reader = lines
    pairs: tuple[str, ...] = ()  # the pairs that it belongs to; empty for all


@dataclass(frozen=True)
class Published:
    """A named corpus in files of the data folder, downloaded if they are missing.

    `groups` are sets of languages that are parallel with each other. With `pair_folders`, each pair
    has its own folder, for example `wmt14/de-en/`.
    """

    folder: str
    groups: tuple[tuple[str, ...], ...]
    splits: dict[str, tuple[Part, ...]]
    pairs: str  # number of training pairs, for listings
    license: str
    aliases: dict[str, str] = field(default_factory=dict)
    pair_folders: bool = False
    checksums: dict[str, str] = field(default_factory=dict)  # by archive name, if known
    alpha3: dict[str, str] = field(default_factory=dict)

    def directions(self) -> set[tuple[str, str]]:
        """Return every ordered pair of languages within a group."""
        return {(a, b) for group in self.groups for a in group for b in group if a != b}

    def open(self, source: str, target: str, data_dir: Path) -> Files:
        """Return the corpus in one direction."""
        folder = self.path(source, target, data_dir)
        return Files(
            {
                split: (
                    Aligned(
                        folder / f"{split}.{source}",
                        folder / f"{split}.{target}",
                        (source, target),
                    ),
                )
                for split in self.splits
                if self.parts(split, source, target)
            }
        )

    def path(self, source: str, target: str, data_dir: Path) -> Path:
        """Return the folder of a pair."""
        folder = data_dir / self.folder
        return folder / self.pair(source, target) if self.pair_folders else folder

    def pair(self, source: str, target: str) -> str:
        """Return the name of a pair, for example `de-en` for both directions."""
        group = next(group for group in self.groups if source in group and target in group)
        return "-".join(sorted((source, target), key=group.index))

    def parts(self, split: str, source: str, target: str) -> list[Part]:
        """Return the parts of a split of a pair."""
        pair = self.pair(source, target)
        return [part for part in self.splits[split] if not part.pairs or pair in part.pairs]

    def downloads(self, split: str, source: str, target: str) -> dict[str, Download]:
        """Return the archives of a split by name."""
        found = {}
        for part in self.parts(split, source, target):
            for language in (source, target):
                url = self._fill_template(part.url, source, target, language)
                name = re.split("[/=]", url)[-1]
                found[name] = Download(url, part.size, self.checksums.get(name), name)
        return found

    def members(self, split: str, source: str, target: str) -> "list[Member]":
        """Return the members of a split in the order of the text."""
        found = []
        for number, part in enumerate(self.parts(split, source, target)):
            for language in (source, target):
                url = self._fill_template(part.url, source, target, language)
                name = self._fill_template(part.member, source, target, language)
                archive = re.split("[/=]", url)[-1]
                found.append(Member(archive, name, language, number, part.read))
        return found

    def _fill_template(self, template: str, source: str, target: str, language: str) -> str:
        pair = self.pair(source, target)
        other = next((name for name in (source, target) if name != "en"), "")
        return template.format(
            language=language,
            pair=pair,
            joined=pair.replace("-", ""),
            slashed=pair.replace("-", "/"),
            alpha3=self.alpha3.get(other, ""),
        )


class Member(NamedTuple):
    """Text in one language inside an archive."""

    archive: str
    name: str
    language: str
    number: int  # of its part
    read: Reader
