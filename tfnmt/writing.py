"""Files and folders that are there whole or not at all, and locks on them."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tfnmt.errors import UserError
from tfnmt.progress import say

ASIDE = ".*.aside"
"""Matches what `written_aside` writes to; a translation that may go on has another ending."""


def is_special(path: Path) -> bool:
    """Whether there is something to read or write that is no file: a pipe, /dev/null."""
    # Unlike Path's own, these are false, and no error, in a folder that may not be entered.
    return os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path))


@contextmanager
def written_aside(path: Path) -> Iterator[Path]:
    """Gives a path beside `path` to write to, and renames it there if nothing went wrong.

    Works for a file and for a folder that is not there yet; on an error nothing remains. A link is
    followed; what is neither file nor folder, /dev/null for one, is written to as it is.
    """
    if is_special(path):
        try:
            yield path
        except BrokenPipeError:  # who read has enough
            raise
        except OSError as error:
            raise UserError(f"{path}: {error.strerror or error}") from error
        return
    path = Path(os.path.realpath(path))
    aside = path.parent / f".{path.name}.{os.getpid()}.aside"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove(aside)  # what a killed process of the same number left
        yield aside
        aside.rename(path)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}; nothing was written") from error
    finally:
        with suppress(OSError):
            remove(aside)


def write_atomically(path: Path, content: bytes) -> None:
    """Writes a file so that it is there whole or not at all."""
    with written_aside(path) as aside:
        aside.write_bytes(content)


def check_writable(path: Path) -> None:
    """Raises where `write_atomically` could not write: to be told before the work, not after it."""
    if is_special(path):
        return
    path = Path(os.path.realpath(path))
    if path.is_dir():
        raise UserError(f"{path}: a folder; name a file")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; name another file") from error


def check_folder(path: Path) -> None:
    """Raises where a folder cannot be made or written to; makes nothing."""
    there = next(each for each in (path, *path.absolute().parents) if os.path.exists(each))
    if not there.is_dir():
        raise UserError(f"{path}: {there} is no folder; name another")
    if not os.access(there, os.W_OK | os.X_OK):
        raise UserError(f"{path}: {there} cannot be written to; name another")


def check_room(folder: Path, size: int) -> None:
    """Raises the OSError that writing so many bytes would end in.

    For files that HDF5 writes: on a full disk it fails late, and aloud.
    """
    with tempfile.TemporaryFile(dir=folder) as file:
        os.posix_fallocate(file.fileno(), 0, size)


@contextmanager
def exclusive(path: Path, busy: str) -> Iterator[None]:
    """Keeps other processes out while it lasts, by a lock on a file; waits for them, saying `busy`.

    The lock goes with the process, however that ends; the empty file stays.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{busy}; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def remove(path: Path) -> None:
    """Removes a file, or a folder with what is in it; there may be none."""
    if path.is_dir():
        shutil.rmtree(path)
    elif path.exists():
        path.unlink()
