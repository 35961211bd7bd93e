"""Training runs in processes of their own: several devices, kills, signals and full disks.

tests/tfnmt/training/test_loop.py has the faster tests of resuming, in one process.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.system.trainings import (
    Process,
    arguments,
    finish,
    logged_losses,
    processes,
    weights,
)
from tfnmt import train
from tfnmt.runs.checkpoints import is_complete
from tfnmt.runs.run import Run

SCRIPT = Path(__file__).parents[1] / "run_training.py"
SETTINGS = {"training__max_steps": 40, "training__keep_last": 5, "training__validation_steps": 1000}

Start = Callable[..., Process]


class Folder:
    """A folder with a run and its losses."""

    def __init__(self, path: Path) -> None:
        path.mkdir(exist_ok=True)
        self.run = Run(path / "run")
        self.losses_path = path / "losses"

    def losses(self) -> dict[int, str]:
        """Return the exact loss of every step; of a repeated step, the last one."""
        if not self.losses_path.exists():
            return {}
        lines = self.losses_path.read_text().splitlines()
        return {int(step): loss for step, loss in map(str.split, lines)}


def command(folder: Folder, devices: int = 1, **changes: object) -> list[str]:
    """Return the command that trains the run of a folder and writes its losses."""
    script = [sys.executable, "-P", str(SCRIPT), str(folder.losses_path), str(devices)]
    return [*script, *arguments(folder.run.path, SETTINGS | changes)]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start the training run of a folder."""
    with processes() as start_process:
        yield lambda folder, devices=1, **changes: start_process(
            command(folder, devices, **changes)
        )


def wait_for_step(folder: Folder, step: int, process: Process) -> None:
    deadline = time.monotonic() + 300
    while step not in folder.losses():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def float_losses(folder: Folder) -> list[float]:
    return [float.fromhex(loss) for loss in folder.losses().values()]


# --- Several devices ------------------------------------------------------------------------------


def test_several_devices_make_the_20_steps_of_one(
    start: Start, call: Callable[..., None], tmp_path: Path
) -> None:
    """The run on one device trains in this process, to save a start of TensorFlow.

    It has standard attention, so the test also compares flash attention. SimCut cuts off all
    tokens, because random numbers differ between devices.
    """
    one, several = Folder(tmp_path / "one"), Folder(tmp_path / "several")
    simcut = {"training__simcut": 1.0, "training__simcut_share": 0.99999}
    changes = {"training__max_steps": 20, "training__clip_norm": 0.5, **simcut}
    process = start(several, 3, model__attention="flash", **changes)
    call(train, *arguments(one.run.path, SETTINGS | changes))
    finish(process)
    expected = list(logged_losses(one.run).values())
    assert len(expected) == 20
    assert float_losses(several) == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(weights(several.run), weights(one.run), atol=1e-5)


def test_run_can_be_resumed_with_more_or_fewer_devices(
    start: Start, call: Callable[..., None], tmp_path: Path
) -> None:
    straight, changed = Folder(tmp_path / "straight"), Folder(tmp_path / "changed")
    call(train, *arguments(straight.run.path, SETTINGS | {"training__max_steps": 20}))
    for devices, end in (1, 6), (2, 12), (1, 20):
        errors = finish(start(changed, devices, training__max_steps=end))
    assert f"{changed.run.path}: resuming after step 12\n" in errors
    expected = list(logged_losses(straight.run).values())
    assert len(expected) == 20
    assert float_losses(changed) == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(weights(changed.run), weights(straight.run), atol=1e-5)


# --- Interrupted and resumed ----------------------------------------------------------------------

RANDOM = {"model__dropout": 0.3, "data__bpe_dropout": 0.1, "training__average_last": 3}
"""Settings with random numbers in every step, and an average of checkpoints."""


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    folder = Folder(tmp_path_factory.mktemp("uninterrupted"))
    with processes() as start_process:
        finish(start_process(command(folder, **RANDOM)))
    return folder


@pytest.mark.parametrize(
    ("number", "code", "first"),
    [
        (signal.SIGKILL, -signal.SIGKILL, 11),
        (signal.SIGTERM, 128 + signal.SIGTERM, 19),
    ],
)
def test_killed_and_resumed_run_equals_an_uninterrupted_one(
    start: Start,
    uninterrupted: Folder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    code: int,
    first: int,
) -> None:
    """Losses and average are the same bit by bit, with dropout and BPE-dropout.

    After 17 steps with a checkpoint every 10, a kill loses 7 steps. A SIGTERM loses none: it
    arrives when step 17 is over, so step 18 is finished and saved.
    """
    killed = Folder(tmp_path)
    monkeypatch.setenv("KILL_AT", "17")
    monkeypatch.setenv("KILL_WITH", number.name)
    finish(start(killed, **RANDOM), code=code)
    killed.losses_path.unlink()

    monkeypatch.delenv("KILL_AT")
    errors = finish(start(killed, **RANDOM))
    assert f"{killed.run.path}: resuming after step {first - 1}\n" in errors
    resumed, expected = killed.losses(), uninterrupted.losses()
    assert sorted(resumed) == list(range(first, 41))
    assert resumed == {step: expected[step] for step in resumed}
    np.testing.assert_array_equal(weights(killed.run), weights(uninterrupted.run))


def test_finished_run_with_a_later_end_equals_an_uninterrupted_one(
    start: Start, uninterrupted: Folder, tmp_path: Path
) -> None:
    """tests/tfnmt/training/test_loop.py has the case with a moving average of the weights."""
    extended = Folder(tmp_path)
    finish(start(extended, training__max_steps=17, **RANDOM))
    assert extended.run.finished
    errors = finish(start(extended, **RANDOM))
    assert f"{extended.run.path}: resuming after step 17\n" in errors
    assert extended.losses() == uninterrupted.losses()
    np.testing.assert_array_equal(weights(extended.run), weights(uninterrupted.run))
    assert extended.run.config() == uninterrupted.run.config()
    assert "training has finished" in finish(start(extended, **RANDOM))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signal_saves_a_checkpoint_and_reports_how_to_resume(
    start: Start, tmp_path: Path, number: signal.Signals
) -> None:
    folder = Folder(tmp_path)
    process = start(folder, training__max_steps=100_000)
    wait_for_step(folder, 3, process)
    process.send_signal(number)
    errors = finish(process, code=128 + number)
    assert f"{folder.run.path}: stopped and saved; resume with the same command" in errors
    saved = int(folder.run.checkpoints().all()[-1].name)
    assert saved == max(folder.losses())
    assert not folder.run.finished


def test_finished_run_is_reported_and_a_different_configuration_is_refused(
    start: Start, tmp_path: Path
) -> None:
    folder = Folder(tmp_path)
    finish(start(folder, training__max_steps=3))
    before = folder.run.weights().read_bytes()
    errors = finish(start(folder, training__max_steps=3))
    assert "training has finished; raise training.max_steps" in errors
    errors = finish(start(folder, training__max_steps=3, model__d_ff=16), code=1)
    refusal = errors.splitlines()[-1]
    assert refusal.startswith(f"tfnmt: {folder.run.path}: ")
    assert "model.d_ff=16: the run was started with 32; " in refusal
    assert "Traceback" not in errors
    assert folder.run.weights().read_bytes() == before


# --- Damaged and full disks -----------------------------------------------------------------------


def test_damaged_checkpoint_is_reported_and_the_previous_one_resumed(
    start: Start, tmp_path: Path
) -> None:
    folder = Folder(tmp_path)
    process = start(folder, training__max_steps=100_000, training__checkpoint_steps=2)
    wait_for_step(folder, 7, process)
    process.send_signal(signal.SIGTERM)
    finish(process, code=128 + signal.SIGTERM)
    *_, previous, newest = folder.run.checkpoints().all()
    (newest / "model.weights.h5").write_bytes(b"nonsense")

    process = start(folder, training__max_steps=100_000, training__checkpoint_steps=2)
    folder.losses_path.unlink()
    wait_for_step(folder, int(previous.name) + 1, process)
    process.send_signal(signal.SIGTERM)
    errors = finish(process, code=128 + signal.SIGTERM)
    assert f"{newest}: damaged, removed;" in errors
    assert min(folder.losses()) == int(previous.name) + 1


def test_full_disk_keeps_the_last_complete_checkpoint(start: Start, tmp_path: Path) -> None:
    """A limit of the file size has the effect of a full disk."""
    folder = Folder(tmp_path)
    finish(start(folder, training__max_steps=10, training__checkpoint_steps=5))
    complete = folder.run.checkpoints(keep=5).all()
    folder.run.summary_path.unlink()
    config = folder.run.path / "config.yaml"
    config.write_text(config.read_text().replace("max_steps: 10", "max_steps: 20"))

    limited = ["bash", "-c", 'ulimit -f 100; exec "$@"', "-"]
    training = command(folder, training__max_steps=20, training__checkpoint_steps=5)
    done = subprocess.run([*limited, *training], capture_output=True, text=True, timeout=400)
    assert done.returncode == 1, done.stderr
    assert "File too large" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    left = list((folder.run.path / "checkpoints").iterdir())
    assert sorted(left) == complete
    assert all(is_complete(path) for path in complete)
