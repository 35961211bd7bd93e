"""Snapshots of a training: folders named by their steps, whole or not there."""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tfnmt.errors import UserError
from tfnmt.runtime.files import remove, written_aside

WEIGHTS = "model.weights.h5"
CHECKSUMS = "checksums.json"


@dataclass(frozen=True)
class Snapshots:
    """A folder of snapshots, each a folder named by its step, the newest `keep` of them kept."""

    folder: Path
    keep: int

    def write(self, step: int, fill: Callable[[Path], None]) -> Path:
        """Has `fill` write the files of a new snapshot; it appears only when it is whole."""
        path = self.folder / f"{step:08d}"
        with written_aside(path) as aside:
            aside.mkdir()
            fill(aside)
            checksums = {file.name: _sha256(file) for file in sorted(aside.iterdir())}
            (aside / CHECKSUMS).write_text(json.dumps(checksums, indent=1) + "\n")
            remove(path)
        others = [other for other in self.all() if other != path]
        for old in others[: max(0, len(others) + 1 - self.keep)]:
            shutil.rmtree(old)
        return path

    def all(self) -> list[Path]:
        """The complete snapshots, the oldest first."""
        if not self.folder.is_dir():
            return []
        return sorted(path for path in self.folder.iterdir() if path.name.isdigit())

    def newest(self) -> Path | None:
        """The newest snapshot, if there is one."""
        paths = self.all()
        return paths[-1] if paths else None


def snapshot_is_whole(path: Path) -> bool:
    """Whether every file of a snapshot has the checksum that was noted when it was written."""
    try:
        checksums = json.loads((path / CHECKSUMS).read_text())
        return all(_sha256(path / name) == checksum for name, checksum in checksums.items())
    except (OSError, ValueError):
        return False


def check_weights(weights: Path) -> None:
    """Refuses weights that are damaged: they may well load, and translate into nonsense."""
    # Twice: where a training writes a step anew, its old checksum may have met the new weights.
    if _is_contradicted(weights) and _is_contradicted(weights):
        raise UserError(
            f"{weights}: damaged, not what {CHECKSUMS} says; copy the run anew, or remove "
            f"{weights.parent}, and what else there is stands for the run"
        )


@contextmanager
def still_there(weights: Path) -> Iterator[None]:
    """Says so where weights that were found go before they are read: a training keeps the last."""
    try:
        yield
    except FileNotFoundError as error:
        raise UserError(f"{weights}: gone; the run has newer ones: try again") from error


def _is_contradicted(weights: Path) -> bool:
    """Whether a file is not what was noted of it; one that is gone is told by who reads it."""
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
