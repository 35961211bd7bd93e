"""Output files whose writer can be killed and resumed."""

import fcntl
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

from tfnmt.errors import UsageError, UserError
from tfnmt.progress import log
from tfnmt.runtime.files import make_folder, parse_json, remove, sync


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
            make_folder(self.path.parent)
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
            self._clear()  # first: from now on the file is not finished
            sync(self.partial)
            sync(self.path.parent)  # lines of another job must never get this one
            self.job_path.write_text(json.dumps(job))  # not renamed, because it is locked
            sync(self.job_path)
        except OSError as error:
            raise UserError(f"{self.path}: {error.strerror}; nothing was written") from error
        return 0

    def resume(self, job: dict[str, Any]) -> int:
        """Return the number of finished lines; an incomplete last line is removed.

        Raises:
            UsageError: The existing lines belong to a different job.
        """
        if not self._has_lines():
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
            sync(self.partial)
            self.partial.rename(self.path)
            sync(self.path.parent)
        except OSError as error:
            problem = f"{self.path}: {error.strerror or error}"
            raise UserError(f"{problem}; {self._resume_hint}") from error
        except BaseException:
            log(self._resume_hint)
            raise

    def _clear(self) -> None:
        """Create the partial file, without lines."""
        if self.partial.is_dir():  # parts, made with --shard_lines
            remove(self.partial)
        self.partial.write_bytes(b"")

    def _has_lines(self) -> bool:
        """Return whether there are lines, or parts that were made with --shard_lines."""
        if self.partial.is_dir():
            return any(self.partial.glob("part-*"))
        return self.partial.is_file() and self.partial.stat().st_size > 0

    @property
    def _resume_hint(self) -> str:
        return f"finished lines are in {self.partial}; continue with --resume"


def _read_job(path: Path) -> dict[str, Any]:
    """Return the recorded job; empty if the process was killed before it was recorded."""
    try:
        job = parse_json(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return job if isinstance(job, dict) else {}
