"""Checkpoints: folders named by their step, with checksums, that are complete or do not exist.

model.weights.h5     the weights
optimizer.npz        the state of the optimizer } only in checkpoints that training resumes from
state.json           the progress               }
tokenizer.sha256     the checksum of the run's tokenizer, because weights fit only one tokenizer
checksums.json       the checksums of these files
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from json import dumps
from pathlib import Path

from tfnmt.errors import UserError
from tfnmt.runtime.files import atomic_folder, parse_json, remove_folder

WEIGHTS = "model.weights.h5"
STATE = "state.json"
CHECKSUMS = "checksums.json"
TOKENIZER_CHECKSUM = "tokenizer.sha256"
AVERAGED = "averaged.json"
"""The steps whose weights were averaged, in an averaged checkpoint."""

TOKENIZER = "tokenizer.model"
"""The tokenizer in the run folder, which contains the folders of checkpoints."""


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
        tokenizer = self.folder.parent / TOKENIZER
        with atomic_folder(path) as temporary:
            fill(temporary)
            if tokenizer.is_file():
                (temporary / TOKENIZER_CHECKSUM).write_text(f"{sha256(tokenizer)}\n")
            checksums = {file.name: sha256(file) for file in sorted(temporary.iterdir())}
            (temporary / CHECKSUMS).write_bytes(_dump_checksums(checksums))
        others = [other for other in self.all() if other != path]
        for old in others[: max(0, len(others) + 1 - self.keep)]:
            remove_folder(old)
        return path

    def all(self) -> list[Path]:
        """Return the checkpoints, the oldest first.

        Raises:
            UserError: The folder cannot be read.
        """
        try:
            if not self.folder.is_dir():
                return []
            paths = [path for path in self.folder.iterdir() if _is_checkpoint(path)]
        except OSError as error:
            raise _unreadable(error) from error
        return sorted(paths, key=lambda path: int(path.name))

    def newest(self) -> Path | None:
        """Return the newest checkpoint, or None."""
        paths = self.all()
        return paths[-1] if paths else None


def _is_checkpoint(path: Path) -> bool:
    return path.name.isascii() and path.name.isdigit() and path.is_dir()


def format_checksums(files: Mapping[str, bytes]) -> bytes:
    """Return the content of CHECKSUMS for the content of other files, by name."""
    return _dump_checksums({name: hashlib.sha256(files[name]).hexdigest() for name in files})


def _dump_checksums(checksums: dict[str, str]) -> bytes:
    return (dumps(checksums, indent=1) + "\n").encode()


def is_complete(path: Path) -> bool:
    """Return whether every file of a checkpoint exists and matches its recorded checksum."""
    try:
        checksums = _checksums(path)
        return WEIGHTS in checksums and all(
            sha256(path / name) == checksum for name, checksum in checksums.items()
        )
    except (OSError, ValueError):
        return False


def averaged_steps(path: Path) -> list[int] | None:
    """Return the steps that a checkpoint averages; None if it averages none, or if unknown."""
    try:
        steps: list[int] = parse_json((path / AVERAGED).read_bytes())
    except (OSError, ValueError):
        return None
    return steps


def check_weights(weights: Path) -> None:
    """Raise a UserError if a weight file or the tokenizer of its run is damaged or exchanged.

    Either may still load and give nonsense. A missing file or missing checksums are no error here.
    """
    # Check twice. If training replaces the checkpoint of this step during the first check, that
    # check may compare the old checksum with the new weights.
    if _checksum_differs(weights) and _checksum_differs(weights):
        raise UserError(
            f"{weights}: damaged, because it does not match {CHECKSUMS}; copy the run again, or "
            f"remove {weights.parent} to use another checkpoint of the run"
        )
    check_tokenizer(weights.parent)


def check_tokenizer(checkpoint: Path) -> None:
    """Raise a UserError if the tokenizer of the run is not that of a checkpoint.

    Checkpoints of earlier versions do not record their tokenizer.
    """
    tokenizer = checkpoint.parents[1] / TOKENIZER
    try:
        expected = (checkpoint / TOKENIZER_CHECKSUM).read_bytes()
        differs = expected.strip() != sha256(tokenizer).encode()
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unreadable(error) from error
    if differs:
        raise UserError(
            f"{tokenizer}: damaged, or not the tokenizer that {checkpoint} was trained with; copy "
            "the complete run folder again"
        )


@contextmanager
def report_missing(weights: Path) -> Iterator[None]:
    """Raise a UserError if the weights are missing, or disappear before they are read.

    Training removes old checkpoints when it writes new ones.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise UserError(
            f"{weights}: replaced by newer weights of the run, or missing; run the command again, "
            "or copy the complete run folder"
        ) from error


def sha256(path: Path) -> str:
    """Return the SHA-256 checksum of a file in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _checksum_differs(weights: Path) -> bool:
    """Return whether a file differs from its checksum; False if either of them is missing."""
    try:
        return _checksums(weights.parent).get(weights.name) != sha256(weights)
    except FileNotFoundError:
        return False
    except (ValueError, IsADirectoryError):
        return True
    except OSError as error:
        raise _unreadable(error) from error


def _checksums(checkpoint: Path) -> dict[str, str]:
    """Return the recorded checksums by file name.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is not a dictionary of file names, for example because it is damaged.
    """
    checksums = parse_json((checkpoint / CHECKSUMS).read_bytes())
    if not isinstance(checksums, dict) or any(Path(name).name != name for name in checksums):
        raise ValueError(f"{checkpoint / CHECKSUMS}: not a dictionary of file names")
    return checksums


def _unreadable(error: OSError) -> UserError:
    return UserError(f"{error.filename}: {error.strerror}; make it readable, or copy the run again")
