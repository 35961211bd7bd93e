"""The assembly of a published corpus: its archives are fetched, and its files written from them.

The text of a split becomes `<data_dir>/<corpus>/[<pair>/]<split>.<language>`. Archives stay in
`<data_dir>/archives/`.
"""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from tfnmt.data.corpora.archives import read_members
from tfnmt.data.corpora.downloads import fetch
from tfnmt.data.corpora.published import Member, Published
from tfnmt.errors import UserError
from tfnmt.progress import bar, say
from tfnmt.runtime.files import ASIDE, exclusive, written_aside

ARCHIVES = "archives"

ROOM = 6
"""Bytes on disk for a byte of download, about: the archive, its text, and pieces on the way."""


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
    for left in folder.glob(ASIDE):
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
