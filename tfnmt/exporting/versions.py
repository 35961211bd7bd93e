"""The versions in a model base path: numbered folders, of which servers use the highest."""

from pathlib import Path

from tfnmt.errors import UsageError
from tfnmt.litert.files import GRAPHS
from tfnmt.loading.models import versions_in
from tfnmt.runtime.files import remove_folder


def next_version(folder: Path) -> int:
    """Return the number after the highest one in a model base path.

    Every decimal name counts, even if it is not a version of an export.
    """
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return max((int(name) for name in names if name.isdecimal()), default=0) + 1


def check_free(path: Path) -> None:
    """Raise a UsageError if a version exists. A server may be reading it."""
    if path.exists():
        raise UsageError(f"--version={path.name}: {path} already exists; choose another number")


def check_format(folder: Path, is_litert: bool) -> None:
    """Raise a UsageError if a folder has versions of another format.

    A server of SavedModels cannot load the files of LiteRT.
    """
    for version in versions_in(folder):
        if (folder / str(version) / GRAPHS).is_file() != is_litert:
            other = "a SavedModel" if is_litert else "a LiteRT export"
            raise UsageError(
                f"--output={folder}: version {version} is {other}; choose a new folder"
            )


def check_kept(path: Path, keep: int) -> None:
    """Raise a UsageError if `remove_old` would remove the new version.

    It keeps the highest versions, whichever are the newest.
    """
    higher = [version for version in versions_in(path.parent) if version > int(path.name)]
    if len(higher) >= keep:
        raise UsageError(
            f"--keep={keep}: would remove the new version {path.name}, because version "
            f"{higher[-1]} is higher; use a higher --version or omit it"
        )


def remove_old(folder: Path, keep: int) -> list[int]:
    """Remove all versions except the `keep` highest ones; return the removed numbers."""
    old = versions_in(folder)[:-keep]
    for version in old:
        remove_folder(folder / str(version))  # a server never sees an incomplete version
    return old
