"""Published corpora: their archives, which members hold which text, and how it is read."""

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
"""(a member's lines, language) -> its sentences in that language, without line ends."""


# --- Readers --------------------------------------------------------------------------------------


def lines(stream: Iterable[bytes], language: str) -> Iterator[bytes]:
    """Plain text, a sentence per line."""
    del language
    return (line.rstrip(b"\r\n") for line in stream)


def segments(stream: Iterable[bytes], language: str) -> Iterator[bytes]:
    """WMT's and IWSLT's test sets: `<seg id="1">a sentence</seg>`, one a line."""
    del language
    for line in stream:
        found = re.search(rb"<seg[^>]*>(.*)</seg>", line)
        if found:
            yield html.unescape(found[1].decode().strip()).encode()


def talks(stream: Iterable[bytes], language: str) -> Iterator[bytes]:
    """IWSLT's training text: lines, titles and descriptions; the other tags hold no sentences."""
    del language
    for line in stream:
        found = re.fullmatch(rb"(?:<(?:title|description)>|(?!<))(.*?)(?:</\w+>)?\s*", line)
        if found:
            yield found[1].strip()


def every_23rd(read: Reader, held_out: bool) -> Reader:
    """Every 23rd sentence, or all the others: how fairseq cut IWSLT 2014 for validation."""

    def chosen(stream: Iterable[bytes], language: str) -> Iterator[bytes]:
        for number, line in enumerate(read(stream, language), start=1):
            if (number % 23 == 0) == held_out:
                yield line

    return chosen


def every_100th_english(held_out: bool) -> Reader:
    """Tatoeba's columns English, other language, attribution: the rows of every 100th English
    sentence, or all the others. The sentence's checksum decides, so none is on both sides.
    """

    def chosen(stream: Iterable[bytes], language: str) -> Iterator[bytes]:
        for line in stream:
            english, other = line.rstrip(b"\r\n").split(b"\t")[:2]
            if (crc32(english) % 100 == 0) == held_out:
                yield english if language == "en" else other

    return chosen


# --- Entries --------------------------------------------------------------------------------------


class Part(NamedTuple):
    """Some text of a split: an archive's member in each language.

    In `url` and `member`, {language}, {pair} (`de-en`), {joined} (`deen`), {slashed} (`de/en`) and
    {alpha3} (the three letters of the language that is not English) are filled in.
    """

    url: str
    member: str
    size: int  # bytes of the archive, about
    read: Reader = lines
    pairs: tuple[str, ...] = ()  # the pairs that it belongs to; all of them where none is named


@dataclass(frozen=True)
class Published:
    """A named corpus that lies in files of the data folder, downloaded where they are missing.

    `groups` are the languages that are parallel with one another; where there are several groups
    (or `pair_folders` says so), each pair has a folder of its own: `wmt14/de-en/`.
    """

    folder: str
    groups: tuple[tuple[str, ...], ...]
    splits: dict[str, tuple[Part, ...]]
    pairs: str  # how many training pairs, for people
    licence: str
    aliases: dict[str, str] = field(default_factory=dict)
    pair_folders: bool = False
    checksums: dict[str, str] = field(default_factory=dict)  # of archives by name, where known
    alpha3: dict[str, str] = field(default_factory=dict)

    def directions(self) -> set[tuple[str, str]]:
        """Every ordered pair of languages within a group."""
        return {(a, b) for group in self.groups for a in group for b in group if a != b}

    def open(self, source: str, target: str, data_dir: Path) -> Files:
        """The corpus in one direction."""
        folder = self.path(source, target, data_dir)
        return Files(
            {
                split: (Aligned(folder / f"{split}.{source}", folder / f"{split}.{target}"),)
                for split in self.splits
                if self.parts(split, source, target)
            }
        )

    def path(self, source: str, target: str, data_dir: Path) -> Path:
        """The folder of a pair's files."""
        folder = data_dir / self.folder
        return folder / self.pair(source, target) if self.pair_folders else folder

    def pair(self, source: str, target: str) -> str:
        """`de-en`, whichever way it is translated."""
        group = next(group for group in self.groups if source in group and target in group)
        return "-".join(sorted((source, target), key=group.index))

    def parts(self, split: str, source: str, target: str) -> list[Part]:
        """What makes up a split of a pair."""
        pair = self.pair(source, target)
        return [part for part in self.splits[split] if not part.pairs or pair in part.pairs]

    def downloads(self, split: str, source: str, target: str) -> dict[str, Download]:
        """The archives of a split by their names."""
        found = {}
        for part in self.parts(split, source, target):
            for language in (source, target):
                url = self._filled(part.url, source, target, language)
                name = re.split("[/=]", url)[-1]
                found[name] = Download(url, part.size, self.checksums.get(name), name)
        return found

    def members(self, split: str, source: str, target: str) -> "list[Member]":
        """Every member that a split is assembled from, in the order of the text."""
        found = []
        for number, part in enumerate(self.parts(split, source, target)):
            for language in (source, target):
                url = self._filled(part.url, source, target, language)
                name = self._filled(part.member, source, target, language)
                archive = re.split("[/=]", url)[-1]
                found.append(Member(archive, name, language, number, part.read))
        return found

    def _filled(self, template: str, source: str, target: str, language: str) -> str:
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
    """A piece of text in one language, inside an archive."""

    archive: str
    name: str
    language: str
    number: int  # of its part
    read: Reader
