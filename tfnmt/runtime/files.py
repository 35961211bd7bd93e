"""Safe file access: atomic writes, checks of outputs, and locks.

Files survive a power cut: they are written to the disk before they are renamed, and the folder with
the new name afterwards.
"""

import ctypes
import errno
import fcntl
import glob
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
def atomic_path(path: Path, attempt: str = "") -> Iterator[Path]:
    """Yield a temporary path in the same folder, and rename it to `path` if no error occurred.

    Works for files, and for folders that do not exist yet. After an error nothing new remains.
    Symbolic links are followed. A stream, such as /dev/null, is written directly. The content is on
    the disk before the rename, and the new name afterwards.

    Args:
        path: The final path. Its parent folders are created.
        attempt: Added to the temporary name, so that several attempts at one file differ.

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
    with _temporary_of(path, attempt) as (final, temporary):
        yield temporary
        _sync_tree(temporary)
        temporary.rename(final)
        sync(final.parent)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder, and rename it to `path` if no error occurred.

    Like `atomic_path`, but it replaces an existing folder: at any time `path` is the old or the new
    one.

    Args:
        path: The final path. Its parent folders are created.

    Raises:
        UserError: The file system refused an operation.
    """
    with _temporary_of(path) as (final, temporary):
        temporary.mkdir()
        yield temporary
        _sync_tree(temporary)
        if final.is_dir():
            _exchange(temporary, final)
        else:
            temporary.rename(final)
        sync(final.parent)


@contextmanager
def _temporary_of(path: Path, attempt: str = "") -> Iterator[tuple[Path, Path]]:
    """Yield the final path without symbolic links, and a temporary path, removed at the end."""
    path = Path(os.path.realpath(path))
    temporary = _temporary_name(path, attempt)
    try:
        make_folder(path.parent)
        remove(temporary)  # left by a killed process with the same process id
        yield path, temporary
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}; nothing was written") from error
    finally:
        with suppress(OSError):
            remove(temporary)


def _temporary_name(path: Path, attempt: str = "") -> Path:
    # On shared storage, two hosts may have processes with the same number.
    process = ".".join(filter(None, (os.uname().nodename, str(os.getpid()), attempt)))
    return path.with_name(f".{path.name}~{process}.tmp")


def _exchange(new: Path, old: Path) -> None:
    """Exchange the names of two folders in one operation, if the file system supports it."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:  # an old C library
        failed = True
    else:
        names = os.fsencode(new), os.fsencode(old)
        failed = renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) != 0
    if failed:  # such as NFS: for an instant there is neither folder
        remove_folder(old)
        new.rename(old)


_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
"""Constants of Linux. Python has no function for this system call."""


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file completely or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def make_folder(path: Path) -> None:
    """Create a folder and its parents where they are missing, and write them to the disk."""
    missing = [folder for folder in (path, *path.parents) if not folder.is_dir()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in reversed(missing):
        sync(folder.parent)


def sync(path: Path) -> None:
    """Write a file, or the names in a folder, from the memory of the system to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # of file systems without this call
            raise
    finally:
        os.close(descriptor)


def _sync_tree(path: Path) -> None:
    """Write a file, or a folder with its content, to the disk."""
    if path.is_dir():
        for child in path.iterdir():
            _sync_tree(child)
    sync(path)


def append_line(path: Path, line: bytes) -> None:
    """Append a line, and write it to the disk. An incomplete last line is ended first."""
    new = not path.exists()
    with path.open("ab+") as file:
        file.seek(max(0, file.tell() - 1))
        file.write(line if file.read() in (b"", b"\n") else b"\n" + line)
        file.flush()
        os.fsync(file.fileno())
    if new:
        sync(path.parent)


def format_json(content: Any) -> bytes:
    """Return readable JSON."""
    return json.dumps(content, indent=1, ensure_ascii=False).encode() + b"\n"


def parse_json(content: bytes) -> Any:
    """Parse JSON of unknown origin; every problem raises a ValueError."""
    try:
        return json.loads(content)
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def remove(path: Path) -> None:
    """Remove a file, or a folder with its content, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def remove_folder(path: Path) -> None:
    """Remove a folder that others read: renamed first, so that it never appears incomplete."""
    shutil.rmtree(path.rename(path.with_name(f".{path.name}~{os.getpid()}.removed.tmp")))


def remove_leftovers(folder: Path, name: str = "") -> None:
    """Remove the temporary files and folders of killed processes.

    The caller must hold the lock of the writers, so that no other process is using them.

    Args:
        folder: The folder of the final paths.
        name: The name of the final path; all of them if empty.
    """
    for left in folder.glob(f".{glob.escape(name)}~*.tmp" if name else TEMPORARY):
        with suppress(OSError):
            remove(left)


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
    if os.path.isdir(path):
        raise UserError(f"{path}: a folder; choose a file name")
    temporary = _temporary_name(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch()
        temporary.unlink()
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
    check_output_files([(flag, name) for flag, name in outputs.items() if name is not None], inputs)


def check_output_files(
    outputs: Sequence[tuple[str, str]], inputs: Mapping[str, Iterable[Path]]
) -> None:
    """Check output files as `check_outputs` does, but a flag may have several of them.

    Args:
        outputs: Each flag with a file.
        inputs: The files that the command reads, by the flag that selects them.
    """
    given = [(flag, name) for flag, name in outputs if not is_stream(Path(name))]
    read = {source: set(map(_identity, files)) - {None} for source, files in inputs.items()}
    problems = []
    flags_by_path: dict[str, str] = {}
    for flag, name in given:
        path = os.path.realpath(name)
        if path in flags_by_path:
            clash = flags_by_path[path]
            problems.append(f"{flag}={name}: is the file of {clash}; choose another file")
        flags_by_path[path] = flag
        identity = _identity(Path(name))
        problems += [
            f"{flag}={name}: is read by {source}; choose another file"
            for source, identities in read.items()
            if identity in identities
        ]
        if Path(name).suffix.lower() == ".gz":
            problems.append(
                f"{flag}={name}: the output is not compressed; omit the .gz, or pipe the output "
                "through gzip"
            )
    if problems:
        raise UsageError(*problems)
    for _, name in given:
        check_writable(Path(name))


def _identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode of a file, which its links share; None if there is no file."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def check_folder(path: Path) -> None:
    """Raise a UserError if a folder cannot be created or written to. Creates nothing."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:  # such as a name that is too long
        raise UserError(f"{path}: {error.strerror}; choose another path") from error
    existing = next(each for each in (path, *path.absolute().parents) if os.path.exists(each))
    if not existing.is_dir():
        raise UserError(f"{path}: {existing} is not a folder; choose another path")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise UserError(f"{path}: {existing} is not writable; choose another path")


def check_empty(folder: Path) -> None:
    """Raise a UserError if the folder exists and is not empty."""
    try:
        empty = not (os.path.isdir(folder) and any(folder.iterdir()))
    except OSError as error:
        raise UserError(f"{folder}: {error.strerror}; choose a new folder") from error
    if not empty:
        raise UserError(f"{folder}: not empty; choose a new folder")


def check_disk_space(folder: Path, size: int) -> None:
    """Raise an OSError if the disk has no space for a file of `size` bytes.

    Call this before HDF5 writes a file: on a full disk HDF5 fails late and prints its own errors.
    """
    with tempfile.TemporaryFile(dir=folder) as file:
        os.posix_fallocate(file.fileno(), 0, size)


# --- Locks ---------------------------------------------------------------------------------------


@contextmanager
def exclusive(path: Path, place: str, problem: str) -> Iterator[None]:
    """Hold an exclusive lock on a file, which is removed at the end.

    The system releases the lock when the process ends for any reason.

    Args:
        path: The lock file. Its folder is created.
        place: The file, folder or flag that errors name.
        problem: The error if another process holds the lock, and the fix.

    Raises:
        UserError: Another process holds the lock, or the folder is not writable.
    """
    with _lock(path, place, problem):
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _lock(path: Path, place: str, problem: str) -> IO[str]:
    """Return the locked file."""
    try:
        make_folder(path.parent)
        while True:
            lock = path.open("a")
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _names(path, lock):
                return lock
            lock.close()  # its last holder has just removed it
    except BlockingIOError as error:
        lock.close()
        raise UserError(f"{place}: {problem}") from error
    except OSError as error:
        raise UserError(f"{place}: {error.strerror}; choose a writable folder") from error


def _names(path: Path, file: IO[str]) -> bool:
    """Return whether a path is still the name of an open file."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


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
        UserError: The file could not be written.
    """
    if path is None:
        for line in lines:
            print(line, flush=True)
        return
    with atomic_path(Path(path)) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
