"""Where lines go: to stdout as they come, or to a file that appears when it is whole."""

import fcntl
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

from tfnmt.errors import UsageError, UserError
from tfnmt.flags import discard_stdout
from tfnmt.progress import say
from tfnmt.writing import written_aside


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
