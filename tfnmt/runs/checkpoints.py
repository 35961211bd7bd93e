"""Checkpoints: folders named by their step, with checksums, that are complete or do not exist."""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tfnmt.errors import UserError
from tfnmt.runtime.files import atomic_path, remove

WEIGHTS = "model.weights.h5"
CHECKSUMS = "checksums.json"
AVERAGED = "averaged.json"
"""The steps whose weights were averaged, in an averaged checkpoint."""


@dataclass(frozen=True)
class CheckpointFolder:
    """A folder of checkpoints, each in a folder named by its step. Keeps the newest `keep`."""

    folder: Path
    keep: int

    def write(self, step: int, fill: Callable[[Path], None]) -> Path:
        """Write a checkpoint, replacing one of the same step, and remove the oldest ones.

        Args:
            step: The step.
            fill: Writes the files of the checkpoint into the folder that it receives.

        Returns:
            The folder of the checkpoint. It appears only when it is complete.

        Raises:
            UserError: The files could not be written.
        """
        path = self.folder / f"{step:08d}"
        with atomic_path(path) as temporary:
            temporary.mkdir()
            fill(temporary)
            checksums = {file.name: _sha256(file) for file in sorted(temporary.iterdir())}
            (temporary / CHECKSUMS).write_text(json.dumps(checksums, indent=1) + "\n")
            remove(path)
        others = [other for other in self.all() if other != path]
        for old in others[: max(0, len(others) + 1 - self.keep)]:
            shutil.rmtree(old)
        return path

    def all(self) -> list[Path]:
        """Return the checkpoints, the oldest first."""
        if not self.folder.is_dir():
            return []
        return sorted(path for path in self.folder.iterdir() if path.name.isdigit())

    def newest(self) -> Path | None:
        """Return the newest checkpoint, or None."""
        paths = self.all()
        return paths[-1] if paths else None


def is_complete(path: Path) -> bool:
    """Return whether every file of a checkpoint exists and matches its recorded checksum."""
    try:
        checksums = json.loads((path / CHECKSUMS).read_text())
        return all(_sha256(path / name) == checksum for name, checksum in checksums.items())
    except (OSError, ValueError):
        return False


def averaged_steps(path: Path) -> list[int] | None:
    """Return the steps that a checkpoint averages; None if it averages none, or if unknown."""
    try:
        steps: list[int] = json.loads((path / AVERAGED).read_text())
    except (OSError, ValueError):
        return None
    return steps


def check_weights(weights: Path) -> None:
    """Raise a UserError if a weight file is damaged, because it may still load and give nonsense.

    A missing file or missing checksums are no error here.
    """
    # Check twice. If training replaces the checkpoint of this step during the first check, that
    # check may compare the old checksum with the new weights.
    if _checksum_differs(weights) and _checksum_differs(weights):
        raise UserError(
            f"{weights}: damaged, because it does not match {CHECKSUMS}; copy the run again, or "
            f"remove {weights.parent} to use another checkpoint of the run"
        )


@contextmanager
def report_missing(weights: Path) -> Iterator[None]:
    """Raise a UserError if the weights disappear before they are read.

    Training removes old checkpoints when it writes new ones.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise UserError(
            f"{weights}: replaced by newer weights of the run; run the command again"
        ) from error


def _checksum_differs(weights: Path) -> bool:
    """Return whether a file differs from its checksum; False if either of them is missing."""
    try:
        checksums = json.loads((weights.parent / CHECKSUMS).read_text())
        return bool(checksums.get(weights.name) != _sha256(weights))
    except FileNotFoundError:
        return False
    except ValueError:
        return True


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
