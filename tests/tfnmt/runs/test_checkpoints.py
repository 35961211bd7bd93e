import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import tfnmt
from tests.syscalls import Disk, killed_states, power_cuts, record
from tfnmt.errors import UserError
from tfnmt.runs.checkpoints import (
    CHECKSUMS,
    TOKENIZER,
    TOKENIZER_CHECKSUM,
    WEIGHTS,
    CheckpointFolder,
    check_weights,
    is_complete,
    report_missing,
)

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


@pytest.mark.parametrize(
    "content", [b"[]", b"{}", b"null", b'{"../x": "1"}', b'["model.weights.h5"]', b"[" * 10_000]
)
def test_checksums_of_the_wrong_shape_are_damage(tmp_path: Path, content: bytes) -> None:
    path = CheckpointFolder(tmp_path, keep=1).write(1, write_weights(b"some"))
    (path / CHECKSUMS).write_bytes(content)
    assert not is_complete(path)
    with pytest.raises(UserError, match=rf"{path / WEIGHTS}: damaged"):
        check_weights(path / WEIGHTS)


def test_weight_file_replaced_by_a_folder_is_damage(tmp_path: Path) -> None:
    path = CheckpointFolder(tmp_path, keep=1).write(1, write_weights(b"some"))
    (path / WEIGHTS).unlink()
    (path / WEIGHTS).mkdir()
    assert not is_complete(path)
    with pytest.raises(UserError, match=rf"{path / WEIGHTS}: damaged"):
        check_weights(path / WEIGHTS)


@pytest.mark.parametrize("name", ["notes.txt", "00000300", "\N{SUPERSCRIPT TWO}", "12 "])
def test_stray_file_between_checkpoints_is_ignored(tmp_path: Path, name: str) -> None:
    checkpoints = CheckpointFolder(tmp_path / "averaged", keep=1)
    path = checkpoints.write(100, write_weights(b"some"))
    (checkpoints.folder / name).write_text("mine")
    assert checkpoints.all() == [path]
    checkpoints.write(200, write_weights(b"some"))
    assert names(checkpoints.folder) == sorted(["00000200", name])


def test_missing_weights_are_a_user_error(tmp_path: Path) -> None:
    weights = tmp_path / WEIGHTS
    missing = pytest.raises(UserError, match=rf"^{weights}: replaced .*, or missing")
    with missing, report_missing(weights):
        weights.read_bytes()


# --- The tokenizer --------------------------------------------------------------------------------


def test_weights_are_refused_with_another_tokenizer(tmp_path: Path) -> None:
    (tmp_path / TOKENIZER).write_bytes(b"the tokenizer")
    path = CheckpointFolder(tmp_path / "averaged", keep=1).write(1, write_weights(b"some"))
    check_weights(path / WEIGHTS)
    (tmp_path / TOKENIZER).write_bytes(b"another one of it")
    with pytest.raises(UserError, match=rf"^{tmp_path / TOKENIZER}: damaged, or not "):
        check_weights(path / WEIGHTS)
    assert is_complete(path)  # training must not remove it


def test_checkpoint_of_an_earlier_version_has_no_checksum_of_its_tokenizer(tmp_path: Path) -> None:
    path = CheckpointFolder(tmp_path / "averaged", keep=1).write(1, write_weights(b"some"))
    (tmp_path / TOKENIZER).write_bytes(b"the tokenizer")
    assert TOKENIZER_CHECKSUM not in json.loads((path / CHECKSUMS).read_text())
    check_weights(path / WEIGHTS)


# --- Killed processes, and power cuts -------------------------------------------------------------

WRITE = """
from pathlib import Path
from tfnmt.runs.checkpoints import WEIGHTS, CheckpointFolder

def fill(folder):
    (folder / WEIGHTS).write_bytes(b"new")
    (folder / "state.json").write_text("{}")

def action(folder):
    CheckpointFolder(folder / "checkpoints", keep=2).write(STEP, fill)
"""


def old_run(path: Path) -> Path:
    path.mkdir()
    (path / TOKENIZER).write_bytes(b"the tokenizer")
    for step in (100, 200):
        CheckpointFolder(path / "checkpoints", keep=2).write(step, write_weights(b"old"))
    return path


def newest_weights(path: Path) -> bytes:
    newest = CheckpointFolder(path / "checkpoints", keep=2).newest()
    assert newest is not None
    assert is_complete(newest)
    check_weights(newest / WEIGHTS)
    return (newest / WEIGHTS).read_bytes()


@pytest.mark.parametrize("step", [200, 300])
def test_killed_write_leaves_the_old_or_the_new_checkpoint(tmp_path: Path, step: int) -> None:
    script = WRITE.replace("STEP", str(step))
    states = killed_states(script, old_run(tmp_path / "run"), tmp_path / "states")
    found = [newest_weights(state) for state in states]
    assert found == sorted(found, reverse=True)  # old, then new
    assert set(found) == {b"old", b"new"}
    for state in states:
        assert all(map(is_complete, CheckpointFolder(state / "checkpoints", keep=2).all()))


@pytest.mark.parametrize("step", [200, 300])
def test_power_cut_leaves_the_old_or_the_new_checkpoint(tmp_path: Path, step: int) -> None:
    run = old_run(tmp_path / "run")
    before = shutil.copytree(run, tmp_path / "before")
    script = f"{WRITE.replace('STEP', str(step))}\naction(Path({str(run)!r}))"
    calls = [
        call
        for call in record([sys.executable, "-c", script], tmp_path)
        if call.paths[0].startswith(str(run))
    ]
    states = []
    for files in power_cuts(calls, before, run):
        states.append(tmp_path / f"state-{len(states)}")
        for name, content in files.items():
            path = states[-1] / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    found = [newest_weights(state) for state in states]
    assert found == sorted(found, reverse=True)
    assert set(found) == {b"old", b"new"}


def test_checkpoint_is_synced_before_it_appears(tmp_path: Path) -> None:
    run = old_run(tmp_path / "run")
    script = f"{WRITE.replace('STEP', '300')}\naction(Path({str(run)!r}))"
    disk = Disk()
    for call in record([sys.executable, "-c", script], tmp_path):
        disk.apply(call)
    assert not disk.unsynced(str(run / "checkpoints" / "00000300"))
    synced = [name for name, node in disk.nodes.items() if node.synced]
    assert str(run / "checkpoints" / "00000300" / WEIGHTS) in synced
