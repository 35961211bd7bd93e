"""Safe file access: atomic writes, locks, and output files whose writer can be resumed."""

import fcntl
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from tfnmt.errors import UsageError, UserError
from tfnmt.progress import log

TEMPORARY = ".*.tmp"
"""Glob pattern of the temporary paths of `atomic_path`.

It does not match a partial translation, which may be resumed and therefore must not be removed.
"""


# --- Atomic writes -------------------------------------------------------------------------------


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder, and rename it to `path` if no error occurred.

    Works for files, and for folders that do not exist yet. After an error nothing new remains.
    Symbolic links are followed. A stream, such as /dev/null, is written directly.

    Args:
        path: The final path. Its parent folders are created.

    Raises:
        UserError: The file system refused an operation.
    """
    if is_stream(path):
        try:
            yield path
        except BrokenPipeError:  # the reader has closed the pipe, which is no error
            raise
        except OSError as error:
            raise UserError(f"{path}: {error.strerror or error}") from error
        return
    path = Path(os.path.realpath(path))
    temporary = path.parent / f".{path.name}.{os.getpid()}.tmp"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove(temporary)  # left by a killed process with the same process id
        yield temporary
        temporary.rename(path)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}; nothing was written") from error
    finally:
        with suppress(OSError):
            remove(temporary)


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file completely or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def remove(path: Path) -> None:
    """Remove a file, or a folder with its content, if it exists."""
    if path.is_dir():
        shutil.rmtree(path)
    elif path.exists():
        path.unlink()


def is_stream(path: Path) -> bool:
    """Return whether a path exists that is neither a file nor a folder: a pipe, or a device."""
    # In a folder without permission, os.path returns False where Path's methods raise an error.
    return os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path))


# --- Checks before the work starts ---------------------------------------------------------------


def check_writable(path: Path) -> None:
    """Raise a UserError if `write_atomically` would fail. Creates the parent folders.

    Commands call this before the work, not after it.
    """
    if is_stream(path):
        return
    path = Path(os.path.realpath(path))
    if path.is_dir():
        raise UserError(f"{path}: a folder; choose a file name")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; choose another file") from error


def check_outputs(outputs: Mapping[str, str | None], inputs: Mapping[str, Iterable[Path]]) -> None:
    """Check the output files of a command before its work.

    Links are followed. Several flags may name the same stream.

    Args:
        outputs: The file of each output flag; None if the flag is not given.
        inputs: The files that the command reads, by the flag that selects them.

    Raises:
        UsageError: An output is an input or another output, or has the name of a compressed file.
        UserError: A file cannot be written.
    """
    given = {
        flag: name
        for flag, name in outputs.items()
        if name is not None and not is_stream(Path(name))
    }
    problems = []
    flags_by_path: dict[str, str] = {}
    for flag, name in given.items():
        clash = flags_by_path.setdefault(os.path.realpath(name), flag)
        if clash != flag:
            problems.append(f"{flag}={name}: is the file of {clash}; choose another file")
        problems += [
            f"{flag}={name}: is read by {source}; choose another file"
            for source, files in inputs.items()
            if any(_is_same_file(Path(name), file) for file in files)
        ]
        if Path(name).suffix.lower() == ".gz":
            problems.append(
                f"{flag}={name}: the output is not compressed; omit the .gz, or pipe the output "
                "through gzip"
            )
    if problems:
        raise UsageError(*problems)
    for name in given.values():
        check_writable(Path(name))


def _is_same_file(path: Path, other: Path) -> bool:
    # In a folder without permission, os.path returns False where Path's methods raise an error.
    return os.path.isfile(path) and os.path.exists(other) and os.path.samefile(path, other)


def check_folder(path: Path) -> None:
    """Raise a UserError if a folder cannot be created or written to. Creates nothing."""
    existing = next(each for each in (path, *path.absolute().parents) if os.path.exists(each))
    if not existing.is_dir():
        raise UserError(f"{path}: {existing} is not a folder; choose another path")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise UserError(f"{path}: {existing} is not writable; choose another path")


def check_disk_space(folder: Path, size: int) -> None:
    """Raise an OSError if the disk has no space for a file of `size` bytes.

    Call this before HDF5 writes a file: on a full disk HDF5 fails late and prints its own errors.
    """
    with tempfile.TemporaryFile(dir=folder) as file:
        os.posix_fallocate(file.fileno(), 0, size)


# --- Locks ---------------------------------------------------------------------------------------


@contextmanager
def file_lock(path: Path, message: str) -> Iterator[None]:
    """Hold an exclusive lock on a file; wait while another process holds it.

    The system releases the lock when the process ends for any reason. The empty file remains.

    Args:
        path: The lock file. It is created with its parent folders.
        message: Logged before waiting, such as "another process prepares the corpus".
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log(f"{message}; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# --- Lines of output -----------------------------------------------------------------------------


def write_lines(lines: Iterable[str], path: str | None) -> None:
    """Write lines to a file, or print each line immediately if `path` is None.

    Raises:
        UserError: The file, or stdout, could not be written.
    """
    if path is None:
        for line in lines:
            _print(line)
        return
    with atomic_path(Path(path)) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)


def _print(line: str) -> None:
    try:
        print(line, flush=True)
    except BrokenPipeError:  # the reader has closed the pipe, which is no error
        raise
    except OSError as error:
        discard_stdout()
        raise UserError(f"stdout: {error.strerror}") from error


def discard_stdout() -> None:
    """Redirect stdout to nowhere, so that Python's flush at exit does not raise another error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class ResumableFile:
    """An output file that appears when it is complete, and whose writer can be killed and resumed.

    Until then, `.<name>.partial` in the same folder contains the finished lines. `.<name>.job`
    contains the job: the input and the settings that the lines were made with. It stays, so that
    the job of a complete file can be checked.

    Call `locked`, then `start` or `resume`, then `write`.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(os.path.realpath(path))
        self.partial = self.path.with_name(f".{self.path.name}.partial")
        self.job_path = self.path.with_name(f".{self.path.name}.job")

    @property
    def finished(self) -> bool:
        """Whether the file is complete, and was not started again afterwards."""
        return self.path.is_file() and not self.partial.exists()

    def locked(self) -> IO[str]:
        """Exclude other writers until the returned file is closed, or the process ends.

        Raises:
            UserError: Another process is writing, or the folder is not writable.
        """
        if self.path.is_dir():
            raise UsageError(f"{self.path}: a folder; choose a file name")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Lock the job file, because the partial file is renamed at the end.
            lock = self.job_path.open("a")
        except OSError as error:
            raise UserError(f"{self.path}: {error.strerror}; nothing was written") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.close()
            raise UserError(
                f"{self.path}: another process is writing this file; wait until it has finished"
            ) from error
        return lock

    def start(self, job: dict[str, Any]) -> int:
        """Discard earlier lines and record the job; returns 0, the number of finished lines."""
        try:
            self.partial.write_bytes(b"")  # first: from now on the file is not finished
            self.job_path.write_text(json.dumps(job))
        except OSError as error:
            raise UserError(f"{self.path}: {error.strerror}; nothing was written") from error
        return 0

    def resume(self, job: dict[str, Any]) -> int:
        """Return the number of finished lines; an incomplete last line is removed.

        Raises:
            UsageError: The existing lines belong to a different job.
        """
        if not (self.partial.is_file() and self.partial.stat().st_size):
            return self.start(job)
        self.check_job(job)
        lines, size = 0, 0
        with self.partial.open("rb+") as file:
            for line in file:
                if line.endswith(b"\n"):
                    lines, size = lines + 1, size + len(line)
            file.truncate(size)
        return lines

    def check_job(self, job: dict[str, Any]) -> None:
        """Raise a UsageError if the existing lines belong to a different job."""
        recorded = _read_job(self.job_path)
        differing = [key for key, value in job.items() if recorded.get(key) != value]
        if differing:
            existing = self.partial if self.partial.exists() else self.path
            raise UsageError(
                f"--resume: {existing} was made with a different {', '.join(differing)}; use the "
                "same model, input and flags, or start over without --resume"
            )

    def write(self, lines: Iterable[str]) -> None:
        """Append lines as they arrive, and give the file its final name after the last one."""
        try:
            # Line-buffered: finished lines survive however the process ends.
            with self.partial.open("a", encoding="utf-8", newline="\n", buffering=1) as file:
                file.writelines(f"{line}\n" for line in lines)
            self.partial.rename(self.path)
        except OSError as error:
            problem = f"{self.path}: {error.strerror or error}"
            raise UserError(f"{problem}; {self._resume_hint}") from error
        except BaseException:
            log(self._resume_hint)
            raise

    @property
    def _resume_hint(self) -> str:
        return f"finished lines are in {self.partial}; continue with --resume"


def _read_job(path: Path) -> dict[str, Any]:
    """Return the recorded job; empty if the process was killed before it was recorded."""
    try:
        job = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return job if isinstance(job, dict) else {}
