import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import tfnmt
from tfnmt.errors import UserError
from tfnmt.runs.checkpoints import CHECKSUMS, WEIGHTS, CheckpointFolder, check_weights, is_complete

REPOSITORY = Path(tfnmt.__file__).resolve().parent.parent

FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from tfnmt.errors import UserError
from tfnmt.runs.checkpoints import CheckpointFolder
from tfnmt.runtime.files import check_disk_space

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

def write(folder):
    if sys.argv[3] == "checking":
        check_disk_space(folder, 200_000)
    else:
        (folder / "model").write_bytes(bytes(200_000))

try:
    CheckpointFolder(Path(sys.argv[1]), keep=1).write(int(sys.argv[2]), write)
except UserError as error:
    print(error)
"""
"""A script that simulates a full disk by a limit on the size of files."""


def write_weights(content: bytes) -> Callable[[Path], None]:
    def fill(folder: Path) -> None:
        (folder / WEIGHTS).write_bytes(content)

    return fill


def failing(error: type[BaseException]) -> Callable[[Path], None]:
    def fill(folder: Path) -> None:
        (folder / WEIGHTS).write_bytes(b"half")
        raise error

    return fill


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def steps(checkpoints: CheckpointFolder) -> list[int]:
    return [int(path.name) for path in checkpoints.all()]


def write_on_a_full_disk(folder: Path, step: int, mode: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, folder, str(step), mode],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_checkpoints_are_ordered_by_step(tmp_path: Path) -> None:
    checkpoints = CheckpointFolder(tmp_path / "checkpoints", keep=9)
    assert checkpoints.all() == []
    assert checkpoints.newest() is None
    for step in (90, 1000, 200):
        checkpoints.write(step, write_weights(b"some"))
    assert steps(checkpoints) == [90, 200, 1000]
    newest = checkpoints.newest()
    assert newest is not None
    assert int(newest.name) == 1000


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_only_the_newest_checkpoints_are_kept(tmp_path: Path, keep: int) -> None:
    checkpoints = CheckpointFolder(tmp_path, keep)
    for step in range(100, 600, 100):
        checkpoints.write(step, write_weights(b"some"))
        assert steps(checkpoints) == list(range(100, step + 1, 100))[-keep:]
    assert len(names(tmp_path)) == keep


def test_checkpoint_replaces_one_of_the_same_step(tmp_path: Path) -> None:
    checkpoints = CheckpointFolder(tmp_path, keep=2)
    for content in (b"old", b"new"):
        path = checkpoints.write(100, write_weights(content))
    assert (path / WEIGHTS).read_bytes() == b"new"
    assert checkpoints.all() == [path]
    assert is_complete(path)


def test_checkpoint_is_listed_only_when_complete(tmp_path: Path) -> None:
    checkpoints = CheckpointFolder(tmp_path, keep=2)
    seen = []

    def fill(folder: Path) -> None:
        (folder / WEIGHTS).write_bytes(b"some")
        seen.extend(checkpoints.all())

    checkpoints.write(100, fill)
    assert seen == []
    assert steps(checkpoints) == [100]


@pytest.mark.parametrize("step", [100, 200])
def test_failed_checkpoint_keeps_the_older_one(tmp_path: Path, step: int) -> None:
    checkpoints = CheckpointFolder(tmp_path, keep=1)
    old = checkpoints.write(100, write_weights(b"old"))
    with pytest.raises(KeyboardInterrupt):
        checkpoints.write(step, failing(KeyboardInterrupt))
    assert names(tmp_path) == [old.name]
    assert is_complete(old)


def test_temporary_folders_are_not_listed(tmp_path: Path) -> None:
    checkpoints = CheckpointFolder(tmp_path, keep=2)
    complete = checkpoints.write(100, write_weights(b"some"))
    (tmp_path / ".00000200.123.tmp").mkdir()
    (tmp_path / "notes.txt").write_text("other")
    assert checkpoints.all() == [complete]


@pytest.mark.parametrize("mode", ["writing", "checking"])
@pytest.mark.parametrize("step", [100, 200])
def test_full_disk_is_reported_and_keeps_the_older_checkpoint(
    tmp_path: Path, step: int, mode: str
) -> None:
    old = CheckpointFolder(tmp_path, keep=1).write(100, write_weights(b"old"))
    message = write_on_a_full_disk(tmp_path, step, mode)
    assert message == f"{tmp_path / f'{step:08d}'}: File too large; nothing was written\n"
    assert names(tmp_path) == [old.name]
    assert is_complete(old)


@pytest.mark.parametrize("name", [WEIGHTS, "optimizer.npz", CHECKSUMS])
def test_damaged_checkpoint_is_not_complete(tmp_path: Path, name: str) -> None:
    def fill(folder: Path) -> None:
        for file in (WEIGHTS, "optimizer.npz"):
            (folder / file).write_bytes(file.encode() * 100)

    path = CheckpointFolder(tmp_path, keep=1).write(100, fill)
    assert is_complete(path)
    content = (path / name).read_bytes()
    for position in (0, len(content) // 2):
        flipped = bytearray(content)
        flipped[position] ^= 1
        (path / name).write_bytes(flipped)
        assert not is_complete(path)
    (path / name).write_bytes(content[:-10])
    assert not is_complete(path)
    (path / name).unlink()
    assert not is_complete(path)
    (path / name).write_bytes(content)
    assert is_complete(path)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, SystemExit])
def test_failed_checkpoint_leaves_no_folder(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error):
        CheckpointFolder(tmp_path, keep=1).write(1, failing(error))
    assert names(tmp_path) == []


def test_check_weights_compares_with_the_recorded_checksum(tmp_path: Path) -> None:
    path = CheckpointFolder(tmp_path, keep=1).write(1, write_weights(b"some"))
    check_weights(path / WEIGHTS)
    write_weights(b"more")(path)
    with pytest.raises(UserError, match=rf"{path / WEIGHTS}: damaged"):
        check_weights(path / WEIGHTS)
    (path / CHECKSUMS).write_text("half")
    with pytest.raises(UserError, match="damaged"):
        check_weights(path / WEIGHTS)
    (path / CHECKSUMS).unlink()
    check_weights(path / WEIGHTS)  # no checksums to compare with
    check_weights(tmp_path / "gone" / WEIGHTS)  # a missing file is reported when it is read
