import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import tfnmt
from tfnmt.errors import UserError
from tfnmt.runs.checkpoints import CHECKSUMS, WEIGHTS, Snapshots, check_weights, snapshot_is_whole

REPOSITORY = Path(tfnmt.__file__).resolve().parent.parent

FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from tfnmt.errors import UserError
from tfnmt.runs.checkpoints import Snapshots
from tfnmt.runtime.files import check_room

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

def write(folder):
    if sys.argv[3] == "checking":
        check_room(folder, 200_000)
    else:
        (folder / "model").write_bytes(bytes(200_000))

try:
    Snapshots(Path(sys.argv[1]), keep=1).write(int(sys.argv[2]), write)
except UserError as error:
    print(error)
"""
"""To a process, a limit on the size of its files is a disk that is full."""


def weights(content: bytes) -> Callable[[Path], None]:
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


def steps(snapshots: Snapshots) -> list[int]:
    return [int(path.name) for path in snapshots.all()]


def write_on_a_full_disk(folder: Path, step: int, how: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, folder, str(step), how],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_snapshots_come_in_the_order_of_their_steps(tmp_path: Path) -> None:
    snapshots = Snapshots(tmp_path / "checkpoints", keep=9)
    assert snapshots.all() == []
    assert snapshots.newest() is None
    for step in (90, 1000, 200):
        snapshots.write(step, weights(b"some"))
    assert steps(snapshots) == [90, 200, 1000]
    newest = snapshots.newest()
    assert newest is not None
    assert int(newest.name) == 1000


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_only_the_newest_snapshots_are_kept(tmp_path: Path, keep: int) -> None:
    snapshots = Snapshots(tmp_path, keep)
    for step in range(100, 600, 100):
        snapshots.write(step, weights(b"some"))
        assert steps(snapshots) == list(range(100, step + 1, 100))[-keep:]
    assert len(names(tmp_path)) == keep


def test_a_snapshot_of_the_same_step_replaces_the_old_one(tmp_path: Path) -> None:
    snapshots = Snapshots(tmp_path, keep=2)
    for content in (b"old", b"new"):
        path = snapshots.write(100, weights(content))
    assert (path / WEIGHTS).read_bytes() == b"new"
    assert snapshots.all() == [path]
    assert snapshot_is_whole(path)


def test_a_snapshot_is_listed_only_when_it_is_whole(tmp_path: Path) -> None:
    snapshots = Snapshots(tmp_path, keep=2)
    seen = []

    def fill(folder: Path) -> None:
        (folder / WEIGHTS).write_bytes(b"some")
        seen.extend(snapshots.all())

    snapshots.write(100, fill)
    assert seen == []
    assert steps(snapshots) == [100]


@pytest.mark.parametrize("step", [100, 200])
def test_a_snapshot_that_fails_leaves_the_older_one(tmp_path: Path, step: int) -> None:
    snapshots = Snapshots(tmp_path, keep=1)
    old = snapshots.write(100, weights(b"old"))
    with pytest.raises(KeyboardInterrupt):
        snapshots.write(step, failing(KeyboardInterrupt))
    assert names(tmp_path) == [old.name]
    assert snapshot_is_whole(old)


def test_what_a_killed_process_left_is_not_listed(tmp_path: Path) -> None:
    snapshots = Snapshots(tmp_path, keep=2)
    whole = snapshots.write(100, weights(b"some"))
    (tmp_path / ".00000200.123.aside").mkdir()
    (tmp_path / "notes.txt").write_text("not ours")
    assert snapshots.all() == [whole]


@pytest.mark.parametrize("how", ["writing", "checking"])
@pytest.mark.parametrize("step", [100, 200])
def test_a_full_disk_is_told_and_leaves_the_older_snapshot(
    tmp_path: Path, step: int, how: str
) -> None:
    old = Snapshots(tmp_path, keep=1).write(100, weights(b"old"))
    message = write_on_a_full_disk(tmp_path, step, how)
    assert message == f"{tmp_path / f'{step:08d}'}: File too large; nothing was written\n"
    assert names(tmp_path) == [old.name]
    assert snapshot_is_whole(old)


@pytest.mark.parametrize("name", [WEIGHTS, "optimizer.npz", CHECKSUMS])
def test_a_damaged_snapshot_is_found_out(tmp_path: Path, name: str) -> None:
    def fill(folder: Path) -> None:
        for file in (WEIGHTS, "optimizer.npz"):
            (folder / file).write_bytes(file.encode() * 100)

    path = Snapshots(tmp_path, keep=1).write(100, fill)
    assert snapshot_is_whole(path)
    content = (path / name).read_bytes()
    for place in (0, len(content) // 2):
        flipped = bytearray(content)
        flipped[place] ^= 1
        (path / name).write_bytes(flipped)
        assert not snapshot_is_whole(path)
    (path / name).write_bytes(content[:-10])
    assert not snapshot_is_whole(path)
    (path / name).unlink()
    assert not snapshot_is_whole(path)
    (path / name).write_bytes(content)
    assert snapshot_is_whole(path)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, SystemExit])
def test_after_an_error_nothing_is_left_of_a_folder(
    tmp_path: Path, error: type[BaseException]
) -> None:
    with pytest.raises(error):
        Snapshots(tmp_path, keep=1).write(1, failing(error))
    assert names(tmp_path) == []


def test_weights_are_damaged_that_are_not_what_was_noted(tmp_path: Path) -> None:
    path = Snapshots(tmp_path, keep=1).write(1, weights(b"some"))
    check_weights(path / WEIGHTS)
    weights(b"more")(path)
    with pytest.raises(UserError, match=rf"{path / WEIGHTS}: damaged"):
        check_weights(path / WEIGHTS)
    (path / CHECKSUMS).write_text("half")
    with pytest.raises(UserError, match="damaged"):
        check_weights(path / WEIGHTS)
    (path / CHECKSUMS).unlink()
    check_weights(path / WEIGHTS)  # nothing says otherwise
    check_weights(tmp_path / "gone" / WEIGHTS)  # who reads them says so
