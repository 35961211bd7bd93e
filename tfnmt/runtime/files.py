"""Files and folders that are there whole or not at all, and locks on them."""

import fcntl
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from tfnmt.errors import UsageError, UserError
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


def write_lines(lines: Iterable[str], path: str | None) -> None:
    """Writes to stdout, each line as soon as it is there, or to a file."""
    if path is None:
        for line in lines:
            _print(line)
        return
    with written_aside(Path(path)) as aside, aside.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)


class GrowingFile:
    """A file that appears when it is whole, and whose writer may be killed and started again.

    Until then `.<name>.partial` beside it has the lines that are done, and `.<name>.job` says what
    they were made of, and how.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(os.path.realpath(path))
        self.partial = self.path.with_name(f".{self.path.name}.partial")
        self.job_path = self.path.with_name(f".{self.path.name}.job")

    @property
    def finished(self) -> bool:
        """Whether it is there, and was not begun anew since."""
        return self.path.is_file() and not (self.partial.exists() or self.job_path.exists())

    def held(self) -> IO[str]:
        """Keeps other writers of the file out until it is closed, or the process ends."""
        if self.path.is_dir():
            raise UsageError(f"{self.path}: a folder; name a file")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # The job is what is locked: the lines get another name at the end.
            lock = self.job_path.open("a")
        except OSError as error:
            raise UserError(f"{self.path}: {error.strerror}; nothing was written") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.close()
            raise UserError(f"{self.path}: another process is writing it; wait for it") from error
        return lock

    def begin(self, job: dict[str, Any]) -> int:
        """Leaves nothing of what was done before: 0 lines."""
        try:
            self.partial.unlink(missing_ok=True)
            self.job_path.write_text(json.dumps(job))
        except OSError as error:
            raise UserError(f"{self.path}: {error.strerror}; nothing was written") from error
        return 0

    def resume(self, job: dict[str, Any]) -> int:
        """The number of lines that are done; half a line, which a kill may leave, is cut off."""
        if not self.partial.is_file():
            return self.begin(job)
        theirs = _read(self.job_path)
        differing = [key for key, value in job.items() if theirs.get(key) != value]
        if differing:
            raise UsageError(
                f"--resume: {self.partial} was begun with another {', '.join(differing)}; go on as "
                "it was begun, or begin anew without --resume"
            )
        lines, size = 0, 0
        with self.partial.open("rb+") as file:
            for line in file:
                if line.endswith(b"\n"):
                    lines, size = lines + 1, size + len(line)
            file.truncate(size)
        return lines

    def write(self, lines: Iterable[str]) -> None:
        """Adds lines as they come, and gives the file its name when they are through."""
        try:
            # Line by line: whatever ends the process, what was done is there.
            with self.partial.open("a", encoding="utf-8", newline="\n", buffering=1) as file:
                file.writelines(f"{line}\n" for line in lines)
            self.partial.rename(self.path)
            self.job_path.unlink(missing_ok=True)
        except OSError as error:
            raise UserError(f"{self.path}: {error.strerror or error}; {self._left}") from error
        except BaseException:
            say(self._left)
            raise

    @property
    def _left(self) -> str:
        return f"what is done lies in {self.partial}; --resume goes on with it"


def discard_stdout() -> None:
    """What stdout still holds goes nowhere: Python's own flush at exit must not complain again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print(line: str) -> None:
    try:
        print(line, flush=True)
    except BrokenPipeError:  # who read has enough
        raise
    except OSError as error:
        discard_stdout()
        raise UserError(f"stdout: {error.strerror}") from error


def _read(path: Path) -> dict[str, Any]:
    """What a job was; nothing where a kill came before it was noted."""
    try:
        job: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return job
