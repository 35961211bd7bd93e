"""Two workers on the loopback interface, connected by TF_CONFIG: real processes, real sockets."""

import json
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
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
from tfnmt.runs.run import Run

Start = Callable[..., Process]
Workers = Callable[..., list[Process]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start the train command."""
    with processes() as start_process:

        def start_training(
            run: Path,
            environment: dict[str, str],
            program: Sequence[str] = ("-m", "tfnmt.train"),
            **changes: object,
        ) -> Process:
            command = [sys.executable, *program, *arguments(run, changes)]
            return start_process(command, env=os.environ | environment)

        yield start_training


@pytest.fixture
def reserved_ports() -> Iterator[list[int]]:
    """Two ports that no other process gets. A socket that does not listen is bound to each."""
    with ExitStack() as sockets:
        held = [sockets.enter_context(socket.socket()) for _ in range(2)]
        for each in held:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, True)
            each.bind(("127.0.0.1", 0))
        yield [each.getsockname()[1] for each in held]


@pytest.fixture
def workers(start: Start, reserved_ports: list[int]) -> Workers:
    """Start two workers. The first one is the chief."""

    def start_workers(run: Path, **changes: object) -> list[Process]:
        addresses = [f"127.0.0.1:{port}" for port in reserved_ports]
        tasks = [{"type": "worker", "index": index} for index in range(2)]
        return [
            start(
                run,
                {
                    "TF_CONFIG": json.dumps({"cluster": {"worker": addresses}, "task": task}),
                    "TF_GRPC_REUSE_PORT": "1",
                },
                **changes,
            )
            for task in tasks
        ]

    return start_workers


def wait_for_checkpoint(run: Path, process: Process) -> None:
    deadline = time.monotonic() + 240
    while not Run(run).checkpoints().all():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_two_workers_make_the_steps_of_one_process_and_only_the_chief_writes(
    start: Start, workers: Workers, tmp_path: Path
) -> None:
    steps = {"training__max_steps": 20, "training__validation_steps": 15}
    finish(start(tmp_path / "one", {}, **steps))
    chief, other = workers(tmp_path / "two", **steps)
    assert "2 CPU device(s)" in finish(chief)
    assert "val BLEU" not in finish(other)
    one, two = Run(tmp_path / "one"), Run(tmp_path / "two")
    assert len(list(two.logs.glob("events*"))) == len(list(one.logs.glob("events*")))
    expected = logged_losses(one)
    assert len(expected) == 20
    assert logged_losses(two) == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(weights(two), weights(one), atol=1e-5)


ENDLESS = {"training__max_steps": 1_000_000, "training__validation_steps": 1_000_000}


@pytest.mark.parametrize("victim", [0, 1])
def test_killed_worker_ends_the_other_one_with_a_one_line_error(
    workers: Workers, tmp_path: Path, victim: int
) -> None:
    both = workers(tmp_path / "run", **ENDLESS)
    wait_for_checkpoint(tmp_path / "run", both[0])
    both[victim].send_signal(signal.SIGKILL)
    errors = finish(both[1 - victim], code=1)
    assert "tfnmt: TF_CONFIG: another worker was lost (" in errors
    assert "Graph execution error" not in errors
    assert "Traceback" not in errors
    before = len(Run(tmp_path / "run").checkpoints().all())
    again = workers(tmp_path / "run", **ENDLESS)
    assert before >= 1
    for line in again[0].stderr or ():
        if found := re.search(r"resuming after step ([\d,]+)", line):
            assert int(found[1].replace(",", "")) % 10 == 0
            return
    pytest.fail("training did not resume")


SLOW_SAVE = """
import sys, time
from pathlib import Path
from tfnmt import cli, train
from tfnmt.training.callbacks import Checkpointer

def save(self, logs=None):
    time.sleep(5)
    saved(self, logs)
    (self.run.path / "saved").touch()

saved, Checkpointer.on_train_end = Checkpointer.on_train_end, save
cli.run_command(train.main, train.FLAGS, "", sys.argv[1:])
"""
"""Trains, but takes 5 s longer to save at the end, and creates a file then."""


@pytest.mark.parametrize("receiver", [0, 1])
def test_sigterm_to_one_worker_stops_both_after_the_chief_has_saved(
    workers: Workers, tmp_path: Path, receiver: int
) -> None:
    chief, other = workers(tmp_path / "run", program=("-c", SLOW_SAVE), **ENDLESS)
    wait_for_checkpoint(tmp_path / "run", chief)
    (chief, other)[receiver].send_signal(signal.SIGTERM)
    assert "stopped and saved" in finish(other, code=128 + signal.SIGTERM)
    assert (tmp_path / "run" / "saved").exists()
    assert "stopped and saved" in finish(chief, code=128 + signal.SIGTERM)
    assert not Run(tmp_path / "run").finished


def test_end_without_improvement_is_no_signal_to_the_other_worker(
    workers: Workers, tmp_path: Path
) -> None:
    """Only the chief validates, so only the chief knows that patience has ended."""
    limits = {"training__validation_steps": 1, "training__patience": 1}
    for process in workers(tmp_path / "run", **(ENDLESS | limits)):
        assert "tfnmt: done" in finish(process)
    assert Run(tmp_path / "run").finished
