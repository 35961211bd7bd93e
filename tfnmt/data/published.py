"""Published corpora: where their archives are, which members hold which text, and how it is read.

An entry of the catalogue declares parts; `assemble` fetches their archives and writes the text as
`<data_dir>/<corpus>/[<pair>/]<split>.<language>`. Archives stay in `<data_dir>/archives/`.
"""

import html
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from tfnmt.data.archives import read_members
from tfnmt.data.corpora import Files
from tfnmt.data.downloads import Download, fetch
from tfnmt.data.formats import Aligned
from tfnmt.errors import UserError
from tfnmt.progress import bar, say
from tfnmt.run import exclusive, written_aside

Reader = Callable[[Iterable[bytes], str], Iterator[bytes]]
"""(a member's lines, language) -> its sentences in that language, without line ends."""

ARCHIVES = "archives"

ROOM = 6
"""Bytes on disk for a byte of download, about: the archive, its text, and pieces on the way."""


# --- Readers --------------------------------------------------------------------------------------


def lines(stream: Iterable[bytes], language: str) -> Iterator[bytes]:
    """Plain text, a sentence a line."""
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


# --- Assembling -----------------------------------------------------------------------------------


class Origin(NamedTuple):
    """Where archives are taken from."""

    mirror: str | None = None  # URL of a folder, in place of their own
    pinned: bool = True  # whether they must be the very files that the catalogue knows


def assemble(
    entry: Published,
    languages: tuple[str, str],
    split: str,
    data_dir: Path,
    origin: Origin,
) -> None:
    """Downloads a split of a corpus and writes its files into the data folder."""
    folder = entry.path(*languages, data_dir)
    try:
        _announce(entry, languages, split, data_dir)
        with exclusive(folder / ".lock", f"another process fills {folder}"):
            files = entry.open(*languages, data_dir).files(split)
            if not all(path.is_file() for path in files):  # or the other process made them
                _fill(folder, entry, languages, split, data_dir / ARCHIVES, origin)
    except OSError as error:
        raise UserError(f"{folder}: {error.strerror or error}; mend it and run again") from error


def _fill(
    folder: Path,
    entry: Published,
    languages: tuple[str, str],
    split: str,
    archives: Path,
    origin: Origin,
) -> None:
    """Makes a split's files out of their archives."""
    pieces = folder / ".pieces"
    shutil.rmtree(pieces, ignore_errors=True)  # of a process that was killed
    for left in folder.glob(".*.partial"):
        left.unlink()
    pieces.mkdir()
    try:
        members = entry.members(split, *languages)
        for name, known in entry.downloads(split, *languages).items():
            download = known if origin.pinned else replace(known, checksum=None)
            path = fetch(download, archives, origin.mirror)
            _extract(path, [m for m in members if m.archive == name], pieces)
        _check(members, pieces)
        for language in languages:
            _join([m for m in members if m.language == language], pieces,
                  folder / f"{split}.{language}")  # fmt: skip
    finally:
        shutil.rmtree(pieces, ignore_errors=True)


def _announce(
    entry: Published,
    languages: tuple[str, str],
    split: str,
    data_dir: Path,
) -> None:
    """Says what will be downloaded, under which licence; refuses where there is no room for it."""
    downloads = entry.downloads(split, *languages)
    size = sum(
        download.size
        for name, download in downloads.items()
        if not (data_dir / ARCHIVES / name).is_file()
    )
    data_dir.mkdir(parents=True, exist_ok=True)
    if size == 0:
        return
    free = shutil.disk_usage(data_dir).free
    say(
        f"{entry.folder} {entry.pair(*languages)} {split}: downloading about {readable(size)} into "
        f"{data_dir}, which takes about {readable(ROOM * size)} of the {readable(free)} free there"
    )
    say(f"licence: {entry.licence}")
    if ROOM * size > free:
        raise UserError(
            f"{data_dir}: {readable(free)} are free, about {readable(ROOM * size)} are needed; "
            "make room, or name another folder with --data_dir"
        )


def readable(size: int) -> str:
    """Bytes for people: `1.7 GB`."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} bytes"


def _extract(archive: Path, members: list[Member], pieces: Path) -> None:
    """Writes each member's sentences as a piece of its own, in one pass over the archive."""
    for name, stream in bar(
        read_members(archive, {m.name for m in members}), f"reading {archive.name}", "members"
    ):
        wanted = [m for m in members if m.name == name]
        content = list(stream) if len(wanted) > 1 else stream  # one member, both languages
        for member in wanted:
            try:
                with _piece(member, pieces).open("wb") as file:
                    file.writelines(line + b"\n" for line in member.read(content, member.language))
            except ValueError as error:
                raise UserError(
                    f"{archive}: {name} is not what was expected ({error}); remove the archive and "
                    "run again"
                ) from error


def _check(members: list[Member], pieces: Path) -> None:
    """Raises where the languages of a part have different numbers of sentences."""
    for one, other in zip(members[::2], members[1::2], strict=True):
        counts = [_count(_piece(member, pieces)) for member in (one, other)]
        if counts[0] != counts[1] or counts[0] == 0:
            raise UserError(
                f"{one.archive}: {counts[0]:,} sentences in {one.name}, {counts[1]:,} in "
                f"{other.name}; the archive is not what was expected, remove it and run again"
            )


def _count(path: Path) -> int:
    with path.open("rb") as file:
        return sum(1 for _ in file)


def _join(members: list[Member], pieces: Path, path: Path) -> None:
    """Puts the pieces of one language end to end."""
    with written_aside(path) as aside, aside.open("wb") as file:
        for member in members:
            piece = _piece(member, pieces)
            with piece.open("rb") as text:
                shutil.copyfileobj(text, file, 2**20)
            piece.unlink()


def _piece(member: Member, pieces: Path) -> Path:
    return pieces / f"{member.number}.{member.language}"
