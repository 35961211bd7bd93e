"""Whole trainings in processes of their own: on devices, killed, told to stop, resumed."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.system.trainings import Process, arguments, finish, processes, weights
from tfnmt.runs.checkpoints import snapshot_is_whole
from tfnmt.runs.run import Run

SCRIPT = Path(__file__).parents[1] / "run_training.py"
SETTINGS = {"training__max_steps": 40, "training__keep_last": 5, "training__validation_steps": 1000}

Start = Callable[..., Process]


class Folder:
    """Where a test's run lies, and its losses."""

    def __init__(self, path: Path) -> None:
        self.run = Run(path / "run")
        self.losses_path = path / "losses"

    def losses(self) -> dict[int, str]:
        """The loss of every step; of a step that was made twice, the later one."""
        if not self.losses_path.exists():
            return {}
        lines = self.losses_path.read_text().splitlines()
        return {int(step): loss for step, loss in map(str.split, lines)}


def command(folder: Folder, devices: int = 1, **changes: object) -> list[str]:
    """The training of a folder, which notes its losses."""
    noting = [sys.executable, "-P", str(SCRIPT), str(folder.losses_path), str(devices)]
    return [*noting, *arguments(folder.run.path, SETTINGS | changes)]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts the training of a folder."""
    with processes() as begin:
        yield lambda folder, devices=1, **changes: begin(command(folder, devices, **changes))


def wait_for_step(folder: Folder, step: int, process: Process) -> None:
    deadline = time.monotonic() + 300
    while step not in folder.losses():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_several_devices_take_the_20_steps_of_one(start: Start, tmp_path: Path, count: int) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / f"{count}").mkdir()
    folders = {devices: Folder(tmp_path / str(devices)) for devices in (1, count)}
    for devices, folder in folders.items():
        finish(start(folder, devices, training__max_steps=20, training__clip_norm=0.5))
    one, several = ([float.fromhex(loss) for loss in folder.losses().values()]
                for folder in folders.values())  # fmt: skip
    assert len(one) == 20
    assert several == pytest.approx(one, rel=1e-5)
    np.testing.assert_allclose(weights(folders[count].run), weights(folders[1].run), atol=1e-5)


@pytest.mark.parametrize(
    ("number", "code", "first"),
    [
        (signal.SIGKILL, -signal.SIGKILL, 11),
        pytest.param(signal.SIGTERM, 128 + signal.SIGTERM, 19, marks=pytest.mark.slow),
    ],
)
def test_killed_and_resumed_is_never_killed(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals, code: int, first: int,
) -> None:  # fmt: skip
    """With dropout, of merges too: the losses after what was saved, bit for bit, and the average.

    After 17 steps and a checkpoint every 10, a kill loses 7 steps. A SIGTERM loses none: it comes
    when the 17th is over, so the 18th is finished and saved.
    """
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    never, killed = Folder(tmp_path / "a"), Folder(tmp_path / "b")
    settings = {"model__dropout": 0.3, "data__bpe_dropout": 0.1, "training__average_last": 3}
    finish(start(never, **settings))
    monkeypatch.setenv("KILL_AT", "17")
    monkeypatch.setenv("KILL_WITH", number.name)
    finish(start(killed, **settings), code=code)
    killed.losses_path.unlink()

    monkeypatch.delenv("KILL_AT")
    errors = finish(start(killed, **settings))
    assert f"going on after step {first - 1} " in errors
    resumed, whole = killed.losses(), never.losses()
    assert sorted(resumed) == list(range(first, 41))
    assert resumed == {step: whole[step] for step in resumed}
    np.testing.assert_array_equal(weights(killed.run), weights(never.run))


@pytest.mark.parametrize("ema_decay", [None, 0.9])
def test_a_finished_run_that_is_to_end_later_goes_on_as_if_it_had_not_ended(
    start: Start, tmp_path: Path, ema_decay: float | None
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    straight, longer = Folder(tmp_path / "a"), Folder(tmp_path / "b")
    settings = {"model__dropout": 0.3, "training__average_last": 3}
    settings |= {} if ema_decay is None else {"training__ema_decay": ema_decay}
    finish(start(straight, **settings))
    finish(start(longer, training__max_steps=17, **settings))
    assert longer.run.finished
    errors = finish(start(longer, **settings))
    assert "going on after step 17 " in errors
    assert longer.losses() == straight.losses()
    np.testing.assert_array_equal(weights(longer.run), weights(straight.run))
    assert longer.run.config() == straight.run.config()
    assert "this training is finished" in finish(start(longer, **settings))


@pytest.mark.slow
@pytest.mark.parametrize(("first", "then"), [(1, 2), (2, 1)])
def test_a_run_goes_on_with_more_devices_or_fewer(
    start: Start, tmp_path: Path, first: int, then: int
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    straight, changed = Folder(tmp_path / "a"), Folder(tmp_path / "b")
    finish(start(straight, training__max_steps=20))
    finish(start(changed, first, training__max_steps=10))
    errors = finish(start(changed, then, training__max_steps=20))
    assert "going on after step 10 " in errors
    one, other = ([float.fromhex(loss) for loss in folder.losses().values()]
                  for folder in (straight, changed))  # fmt: skip
    assert len(one) == 20
    assert other == pytest.approx(one, rel=1e-5)
    np.testing.assert_allclose(weights(changed.run), weights(straight.run), atol=1e-5)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_says_how_to_go_on(
    start: Start, tmp_path: Path, number: signal.Signals
) -> None:
    folder = Folder(tmp_path)
    process = start(folder, training__max_steps=100_000)
    wait_for_step(folder, 3, process)
    process.send_signal(number)
    errors = finish(process, code=128 + number)
    assert "the same command goes on from there" in errors
    saved = int(folder.run.checkpoints().all()[-1].name)
    assert saved == max(folder.losses())
    assert not folder.run.finished


@pytest.mark.slow
def test_a_finished_run_says_so_and_another_configuration_is_refused(
    start: Start, tmp_path: Path
) -> None:
    folder = Folder(tmp_path)
    finish(start(folder, training__max_steps=3))
    before = folder.run.weights().read_bytes()
    told = finish(start(folder, training__max_steps=3))
    assert "this training is finished; with a later end (training.max_steps" in told
    errors = finish(start(folder, training__max_steps=3, model__d_ff=16), code=1)
    refusal = errors.splitlines()[-1]
    assert refusal.startswith(f"tfnmt: {folder.run.path}: was started with another model.d_ff;")
    assert "Traceback" not in errors
    assert folder.run.weights().read_bytes() == before


def test_a_damaged_checkpoint_is_told_and_the_one_before_it_used(
    start: Start, tmp_path: Path
) -> None:
    folder = Folder(tmp_path)
    process = start(folder, training__max_steps=100_000, training__checkpoint_steps=2)
    wait_for_step(folder, 7, process)
    process.send_signal(signal.SIGTERM)
    finish(process, code=128 + signal.SIGTERM)
    *_, before, newest = folder.run.checkpoints().all()
    (newest / "model.weights.h5").write_bytes(b"nonsense")

    process = start(folder, training__max_steps=100_000, training__checkpoint_steps=2)
    folder.losses_path.unlink()
    wait_for_step(folder, int(before.name) + 1, process)
    process.send_signal(signal.SIGTERM)
    errors = finish(process, code=128 + signal.SIGTERM)
    assert f"{newest}: damaged, removed;" in errors
    assert min(folder.losses()) == int(before.name) + 1


@pytest.mark.slow
def test_a_full_disk_keeps_the_last_good_checkpoint(start: Start, tmp_path: Path) -> None:
    """A limit on the size of files stands in for the disk."""
    folder = Folder(tmp_path)
    finish(start(folder, training__max_steps=10, training__checkpoint_steps=5))
    good = folder.run.checkpoints(keep=5).all()
    folder.run.summary_path.unlink()
    config = folder.run.path / "config.yaml"
    config.write_text(config.read_text().replace("max_steps: 10", "max_steps: 20"))

    limited = ["bash", "-c", 'ulimit -f 100; exec "$@"', "-"]
    training = command(folder, training__max_steps=20, training__checkpoint_steps=5)
    done = subprocess.run([*limited, *training], capture_output=True, text=True, timeout=400)
    assert done.returncode == 1, done.stderr
    assert "File too large; nothing was written" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    left = list((folder.run.path / "checkpoints").iterdir())
    assert sorted(left) == good
    assert all(snapshot_is_whole(path) for path in good)
