"""Two workers on loopback, as TF_CONFIG joins them: real processes, real sockets."""

import json
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.system.trainings import Process, arguments, finish, processes, weights
from tfnmt.runs.run import Run

Start = Callable[..., Process]
Workers = Callable[..., list[Process]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts the train command."""
    with processes() as begin:

        def begin_training(run: Path, environment: dict[str, str], **changes: object) -> Process:
            flags = arguments(run, {"training.log_steps": 1} | changes)
            command = [sys.executable, "-m", "tfnmt.train", *flags]
            return begin(command, env=os.environ | environment)

        yield begin_training


@pytest.fixture
def workers(start: Start) -> Workers:
    """Starts two workers; the first one is the chief."""

    def begin(run: Path, **changes: object) -> list[Process]:
        addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
        tasks = [{"type": "worker", "index": index} for index in range(2)]
        return [
            start(
                run,
                {"TF_CONFIG": json.dumps({"cluster": {"worker": addresses}, "task": task})},
                **changes,
            )
            for task in tasks
        ]

    return begin


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def wait_for_checkpoint(run: Path, process: Process) -> None:
    deadline = time.monotonic() + 240
    while not Run(run).checkpoints().all():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def losses(run: Path) -> list[float]:
    """The loss of every step, as TensorBoard has it."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(Run(run).logs), size_guidance={"tensors": 0})
    events.Reload()
    return [float(np.frombuffer(event.tensor_proto.tensor_content, np.float32)[0])
            for event in events.Tensors("train/loss")]  # fmt: skip


def test_two_workers_take_the_steps_of_one_process_and_one_of_them_writes(
    start: Start, workers: Workers, tmp_path: Path
) -> None:
    steps = {"training__max_steps": 20, "training__validation_steps": 15}
    finish(start(tmp_path / "one", {}, **steps))
    chief, other = workers(tmp_path / "two", **steps)
    assert "2 CPU device(s)" in finish(chief)
    assert "val BLEU" not in finish(other)
    one, two = losses(tmp_path / "one"), losses(tmp_path / "two")
    assert len(one) == len(two) == 20
    assert two == pytest.approx(one, rel=1e-5)
    np.testing.assert_allclose(
        weights(Run(tmp_path / "two")), weights(Run(tmp_path / "one")), atol=1e-5
    )


ENDLESS = {"training__max_steps": 1_000_000, "training__validation_steps": 1_000_000}


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_worker_ends_the_other_with_a_line(
    workers: Workers, tmp_path: Path, victim: int
) -> None:
    both = workers(tmp_path / "run", **ENDLESS)
    wait_for_checkpoint(tmp_path / "run", both[0])
    both[victim].send_signal(signal.SIGKILL)
    errors = finish(both[1 - victim], code=1)
    assert "tfnmt: TF_CONFIG: another worker has gone; start the same command" in errors
    assert "Traceback" not in errors
    before = len(Run(tmp_path / "run").checkpoints().all())
    again = workers(tmp_path / "run", **ENDLESS)
    assert before >= 1
    for line in again[0].stderr or ():
        if found := re.search(r"going on after step ([\d,]+)", line):
            assert int(found[1].replace(",", "")) % 10 == 0
            return
    pytest.fail("it did not go on")


@pytest.mark.slow
def test_a_sigterm_to_either_stops_both_after_the_same_step(
    workers: Workers, tmp_path: Path
) -> None:
    chief, other = workers(tmp_path / "run", **ENDLESS)
    wait_for_checkpoint(tmp_path / "run", chief)
    other.send_signal(signal.SIGTERM)
    assert "stopped and saved" in finish(other, code=128 + signal.SIGTERM)
    assert "stopped and saved" in finish(chief, code=128 + signal.SIGTERM)
    assert not Run(tmp_path / "run").finished
