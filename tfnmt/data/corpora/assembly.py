"""Assembling a published corpus: downloading its archives and writing its text files.

The text of a split is written to `<data_dir>/<corpus>/[<pair>/]<split>.<language>`. Archives stay
in `<data_dir>/archives/`.
"""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from tfnmt.data.corpora.archives import read_members
from tfnmt.data.corpora.downloads import fetch
from tfnmt.data.corpora.published import Member, Published
from tfnmt.errors import UserError
from tfnmt.progress import log, progress_bar
from tfnmt.runtime.files import TEMPORARY, atomic_path, file_lock

ARCHIVES = "archives"

DISK_FACTOR = 6
"""Approximate bytes on disk per byte of download: archive, text and temporary parts."""


class Origin(NamedTuple):
    """The source of archives."""

    mirror: str | None = None  # URL of a folder that replaces the original addresses
    pinned: bool = True  # whether they must have the checksums of the catalog


def assemble(
    entry: Published,
    languages: tuple[str, str],
    split: str,
    data_dir: Path,
    origin: Origin,
) -> None:
    """Download a split of a corpus and write its text files into the data folder.

    Args:
        entry: The corpus.
        languages: Source and target.
        split: The corpus' own name of the split.
        data_dir: The folder of all corpora.
        origin: The source of archives.

    Raises:
        UserError: The download failed, the disk is full, or an archive is not the expected one.
    """
    folder = entry.path(*languages, data_dir)
    try:
        _announce(entry, languages, split, data_dir)
        with file_lock(folder / ".lock", f"{folder}: another process is writing this corpus"):
            files = entry.open(*languages, data_dir).files(split)
            if not all(path.is_file() for path in files):  # otherwise the other process wrote them
                _fill(folder, entry, languages, split, data_dir / ARCHIVES, origin)
    except OSError as error:
        raise UserError(f"{folder}: {error.strerror or error}; fix this and run again") from error


def _fill(
    folder: Path,
    entry: Published,
    languages: tuple[str, str],
    split: str,
    archives: Path,
    origin: Origin,
) -> None:
    """Write the missing files of a split from its archives."""
    parts = folder / ".parts"
    shutil.rmtree(parts, ignore_errors=True)  # left by a killed process
    for left in folder.glob(TEMPORARY):
        left.unlink()
    parts.mkdir()
    try:
        members = entry.members(split, *languages)
        for name, known in entry.downloads(split, *languages).items():
            download = known if origin.pinned else replace(known, checksum=None)
            path = fetch(download, archives, origin.mirror)
            _extract(path, [m for m in members if m.archive == name], parts)
        _check(members, parts)
        for language in languages:
            path = folder / f"{split}.{language}"
            if not path.is_file():  # pairs share files; yours may be edited
                own = [m for m in members if m.language == language]
                _concatenate(own, parts, path)
    finally:
        shutil.rmtree(parts, ignore_errors=True)


def _announce(
    entry: Published,
    languages: tuple[str, str],
    split: str,
    data_dir: Path,
) -> None:
    """Log the size and the license of the download. Raise a UserError if the disk is too full."""
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
    log(
        f"{entry.folder} {entry.pair(*languages)} {split}: downloading about {readable(size)} to "
        f"{data_dir}; needs about {readable(DISK_FACTOR * size)} of {readable(free)} free space"
    )
    log(f"license: {entry.license}")
    if DISK_FACTOR * size > free:
        raise UserError(
            f"{data_dir}: only {readable(free)} of about {readable(DISK_FACTOR * size)} are free; "
            "free disk space, or choose another folder with --data_dir"
        )


def readable(size: int) -> str:
    """Format a number of bytes, for example `1.7 GB`."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} bytes"


def _extract(archive: Path, members: list[Member], parts: Path) -> None:
    """Write the sentences of each member to a part of its own, in one pass over the archive."""
    for name, stream in progress_bar(
        read_members(archive, {m.name for m in members}), f"reading {archive.name}", "members"
    ):
        wanted = [m for m in members if m.name == name]
        content = list(stream) if len(wanted) > 1 else stream  # one member with both languages
        for member in wanted:
            try:
                with _part(member, parts).open("wb") as file:
                    file.writelines(line + b"\n" for line in member.read(content, member.language))
            except ValueError as error:
                raise UserError(
                    f"{archive}: {name} has an unexpected format ({error}); remove the archive and "
                    "run again"
                ) from error


def _check(members: list[Member], parts: Path) -> None:
    """Raise a UserError if the languages of a part have different numbers of sentences."""
    for one, other in zip(members[::2], members[1::2], strict=True):
        counts = [_count(_part(member, parts)) for member in (one, other)]
        if counts[0] != counts[1] or counts[0] == 0:
            raise UserError(
                f"{one.archive}: {counts[0]:,} sentences in {one.name}, {counts[1]:,} in "
                f"{other.name}; the archive is not the expected one, remove it and run again"
            )


def _count(path: Path) -> int:
    with path.open("rb") as file:
        return sum(1 for _ in file)


def _concatenate(members: list[Member], parts: Path, path: Path) -> None:
    """Concatenate the parts of one language."""
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        for member in members:
            part = _part(member, parts)
            with part.open("rb") as text:
                shutil.copyfileobj(text, file, 2**20)
            part.unlink()


def _part(member: Member, parts: Path) -> Path:
    return parts / f"{member.number}.{member.language}"
