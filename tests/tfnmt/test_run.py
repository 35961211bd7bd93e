import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import tfnmt
from tfnmt.config import Config, build_config, flatten
from tfnmt.errors import UserError
from tfnmt.run import (
    CHECKSUMS,
    WEIGHTS,
    Run,
    Snapshots,
    check_room,
    check_writable,
    newest_finished_run,
    snapshot_is_whole,
    write_atomically,
    written_aside,
)

REPOSITORY = Path(tfnmt.__file__).resolve().parent.parent

FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from tfnmt.errors import UserError
from tfnmt.run import Snapshots, check_room

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


def break_off(path: Path, error: type[BaseException]) -> None:
    with written_aside(path) as aside:
        aside.write_text("half")
        raise error


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


def started(path: Path, config: Config | None = None) -> Run:
    run = Run(path)
    run.create(config or Config(), b"a tokenizer", "prepared")
    return run


def finished(path: Path, seconds: int) -> Run:
    run = started(path)
    run.summary_path.write_text("{}")
    os.utime(run.summary_path, (seconds, seconds))
    return run


def test_a_file_appears_when_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    with written_aside(path) as aside:
        aside.write_text("new")
        assert not path.exists()
    assert path.read_text() == "new"
    assert names(path.parent) == ["file"]


def test_a_folder_appears_when_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    with written_aside(path) as aside:
        aside.mkdir()
        (aside / "file").write_text("new")
        assert not path.exists()
    assert (path / "file").read_text() == "new"
    assert names(tmp_path) == ["folder"]


def test_a_file_that_is_there_is_replaced_at_the_end_only(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with written_aside(path) as aside:
        aside.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, SystemExit])
def test_after_an_error_a_file_is_the_old_one(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(error):
        break_off(path, error)
    assert names(tmp_path) == ["file"]
    assert path.read_text() == "old"


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, SystemExit])
def test_after_an_error_nothing_is_left_of_a_folder(
    tmp_path: Path, error: type[BaseException]
) -> None:
    with pytest.raises(error):
        Snapshots(tmp_path, keep=1).write(1, failing(error))
    assert names(tmp_path) == []


def test_an_error_of_the_file_system_is_the_users(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught, written_aside(tmp_path / "file") as aside:
        (aside / "folder that is none").write_text("new")
    assert (
        str(caught.value) == f"{tmp_path / 'file'}: No such file or directory; nothing was written"
    )
    assert names(tmp_path) == []


def test_what_cannot_be_replaced_stays(tmp_path: Path) -> None:
    path = tmp_path / "taken"
    path.mkdir()
    (path / "file").write_text("old")
    with pytest.raises(UserError, match="nothing was written"):
        write_atomically(path, b"new")
    assert names(tmp_path) == ["taken"]
    assert (path / "file").read_text() == "old"


def test_a_parent_that_is_a_file_is_the_users_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    with pytest.raises(UserError, match="nothing was written"):
        write_atomically(tmp_path / "file" / "below", b"new")


def test_what_could_not_be_written_is_told_before(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    with pytest.raises(UserError, match="below: File exists; name another file"):
        check_writable(tmp_path / "file" / "below")
    with pytest.raises(UserError, match="a folder; name a file"):
        check_writable(tmp_path)


def test_looking_whether_a_file_can_be_written_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    for path in (tmp_path / "file", tmp_path / "new", tmp_path / "a" / "b", Path("/dev/null")):
        check_writable(path)
    assert names(tmp_path) == ["a", "file"]
    assert names(tmp_path / "a") == []
    assert (tmp_path / "file").read_text() == "old"


def test_what_a_killed_process_of_the_same_number_left_is_no_obstacle(tmp_path: Path) -> None:
    """In a container every training is process 1."""
    with written_aside(tmp_path / "folder") as aside:
        aside.mkdir()
    (tmp_path / "folder").rmdir()
    aside.mkdir()
    (aside / "half").write_text("half")
    with written_aside(tmp_path / "folder") as again:
        again.mkdir()
        (again / "file").write_text("new")
    assert names(tmp_path) == ["folder"]
    assert names(tmp_path / "folder") == ["file"]


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
    (tmp_path / ".00000200.123.partial").mkdir()
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


def test_where_there_is_room_checking_leaves_nothing(tmp_path: Path) -> None:
    check_room(tmp_path, 1_000_000)
    assert names(tmp_path) == []


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


def test_a_run_keeps_its_configuration_and_tokenizer(tmp_path: Path) -> None:
    config = build_config({"model": {"d_model": 128}, "training": {"adam_epsilon": 1e-11}})
    run = Run(tmp_path / "runs" / "a")
    assert not run.exists()
    run.create(config, b"a tokenizer", "prepared")
    assert run.exists()
    assert not run.finished
    assert run.config() == config
    assert run.tokenizer_path.read_bytes() == b"a tokenizer"
    assert names(run.path) == ["config.yaml", "prepared", "tokenizer.model"]


def test_what_a_bundle_does_not_tell_is_asked_of_the_run_itself(tmp_path: Path) -> None:
    run = started(tmp_path)
    (run.path / "prepared").unlink()
    for ask in (run.held_out, lambda: run.check_same_text("prepared")):
        with pytest.raises(UserError, match=f"^{run.path}: does not tell what text"):
            ask()


def test_a_run_may_end_otherwise_than_it_was_to_and_is_not_finished_then(tmp_path: Path) -> None:
    run = started(tmp_path)
    run.summary_path.write_text("{}")
    run.end_as(run.config())
    assert run.finished
    ends = {"max_epochs": 50, "max_steps": 7, "max_tokens": 9, "max_minutes": 2.5, "patience": 3}
    longer = build_config({"training": ends})
    run.check_same(longer)
    run.end_as(longer)
    assert run.config() == longer
    assert not run.finished


def test_a_run_goes_on_with_its_own_configuration_only(tmp_path: Path) -> None:
    run = started(tmp_path)
    run.check_same(Config())
    other = build_config({"model": {"d_model": 128}, "data": {"max_pairs": 3}})
    with pytest.raises(UserError) as caught:
        run.check_same(other)
    found = {key for key in flatten(other) if key in str(caught.value)}
    assert found == {"data.max_pairs", "model.d_model"}
    assert "--run_dir" in str(caught.value)


@pytest.mark.parametrize("make", ["nothing", "folder", "half"])
def test_a_folder_without_a_configuration_is_no_run(tmp_path: Path, make: str) -> None:
    run = Run(tmp_path / "a")
    if make != "nothing":
        run.path.mkdir()
    if make == "half":
        run.tokenizer_path.write_bytes(b"a tokenizer")
    for use in (run.config, run.weights):
        with pytest.raises(UserError, match="no run there"):
            use()


def test_the_average_stands_for_a_run_before_the_best_before_the_newest(tmp_path: Path) -> None:
    run = started(tmp_path)
    with pytest.raises(UserError, match="no model in this run yet"):
        run.weights()
    kinds = [(run.checkpoints(5), 300), (run.checkpoints(5), 400), (run.best, 200)]
    for snapshots, step in [*kinds, (run.averaged, 100)]:
        path = snapshots.write(step, weights(b"some"))
        assert run.weights() == path / WEIGHTS
        assert run.weights().is_file()


def test_best_and_averaged_hold_one_snapshot(tmp_path: Path) -> None:
    run = started(tmp_path)
    for snapshots in (run.best, run.averaged):
        for step in (100, 200):
            snapshots.write(step, weights(b"some"))
        assert steps(snapshots) == [200]


def test_the_newest_finished_run_is_the_one_that_ended_last(tmp_path: Path) -> None:
    started(tmp_path / "unfinished")
    (tmp_path / "file").write_text("not a run")
    finished(tmp_path / "z", seconds=1000)
    latest = finished(tmp_path / "m", seconds=3000)
    finished(tmp_path / "a", seconds=2000)
    assert newest_finished_run(tmp_path) == latest


@pytest.mark.parametrize("name", [".", "no such folder"])
def test_without_a_finished_run_the_folder_is_named(tmp_path: Path, name: str) -> None:
    started(tmp_path / "unfinished")
    with pytest.raises(UserError, match="--model: no finished run in ") as caught:
        newest_finished_run(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)


def test_evaluations_are_kept_in_their_order(tmp_path: Path) -> None:
    run = started(tmp_path)
    assert run.evaluations() == []
    first = {"split": "val", "bleu": 30.5, "text": "Grüße\u2028 und\nmehr"}
    run.append_evaluation(first)
    run.append_evaluation({"split": "test"})
    assert run.evaluations() == [first, {"split": "test"}]
    assert len(run.evaluations_path.read_bytes().splitlines()) == 2


def test_half_a_line_is_passed_over_and_harms_none_after_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(tmp_path)
    run.append_evaluation({"split": "val"})
    with run.evaluations_path.open("a") as file:
        file.write('{"split": "te')  # the disk was full
    run.append_evaluation({"split": "test"})
    assert run.evaluations() == [{"split": "val"}, {"split": "test"}]
    assert "evaluations.jsonl: line 2 is not whole, and passed over" in capsys.readouterr().err


def test_a_held_run_keeps_other_trainings_out_until_it_is_let_go(tmp_path: Path) -> None:
    run = Run(tmp_path)
    with run.held(), pytest.raises(UserError, match="another training is at work there"):
        run.held().__enter__()
    with run.held():
        pass


def test_holding_a_run_clears_what_a_killed_training_left(tmp_path: Path) -> None:
    run = Run(tmp_path)
    (tmp_path / "checkpoints" / ".00000003.77.partial").mkdir(parents=True)
    (tmp_path / "checkpoints" / "00000002").mkdir()
    with run.held():
        assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["00000002"]
