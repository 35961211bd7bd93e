"""The image with TensorFlow: training as an unprivileged user, in a restricted container."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import TINY, settings
from tests.containers.podman import Podman, wait_until

Run = Callable[..., subprocess.CompletedProcess[str]]

NAME = "tfnmt-test-train"
TRAIN = ("train", "--dataset=toy", "--run_dir=run")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The folder that is mounted at /work, which belongs to the user of the container."""
    os.chown(tmp_path, 65534, 65534)
    return tmp_path


@pytest.fixture
def run(podman: Podman, train_image: str, work: Path) -> Iterator[Run]:
    """Run a command of tfnmt in a container with the folder."""

    def run_command(*arguments: str, options: tuple[str, ...] = ("--rm",)) -> object:
        restricted = ("--read-only", "--tmpfs=/tmp", "--cap-drop=ALL", "--network=none")
        return podman.attempt(
            *("podman", "run", f"--name={NAME}", *restricted, *options),
            *("--security-opt=no-new-privileges", f"--volume={work}:/work", train_image),
            *arguments,
        )

    yield run_command
    podman.attempt("podman", "rm", "--force", "--time=0", NAME)


def test_training_writes_only_into_the_mounted_folder(run: Run, work: Path) -> None:
    done = run(*TRAIN, *settings(TINY))
    assert done.returncode == 0, done.stderr
    assert (work / "run" / "summary.json").is_file()
    done = run("translate", "--model=run", "a word")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("\n")


def test_stopped_training_saves_and_resumes(podman: Podman, run: Run, work: Path) -> None:
    endless = TINY | {"training.max_steps": 1_000_000}
    done = run(*TRAIN, *settings(endless), options=("--detach",))
    assert done.returncode == 0, done.stderr
    checkpoints = work / "run" / "checkpoints"
    wait_until(lambda: any(checkpoints.glob("0*")))
    podman("stop", "--time=60", NAME)
    assert podman.inspect(NAME)["State"]["ExitCode"] == 143
    step = int(max(checkpoints.glob("0*")).name)
    podman("rm", NAME)
    done = run(*TRAIN, *settings(TINY | {"training.max_steps": step + 6}))
    assert done.returncode == 0, done.stderr
    assert int(max(checkpoints.glob("0*")).name) == step + 6
