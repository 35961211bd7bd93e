"""Two workers on loopback, as TF_CONFIG joins them: real processes, real sockets."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest

from tfnmt.run import Run

SETTINGS = {
    "data.max_pairs": 300, "data.batch_tokens": 160, "data.max_length": 32,
    "tokenizer.vocab_size": 280, "model.num_encoder_layers": 1, "model.num_decoder_layers": 1,
    "model.d_model": 16, "model.d_ff": 32, "model.dropout": 0.0, "training.warmup_steps": 5,
    "training.checkpoint_steps": 10, "training.average_last": 1, "training.log_steps": 1,
}  # fmt: skip

Start = Callable[..., subprocess.Popen[str]]
Workers = Callable[..., list[subprocess.Popen[str]]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts the train command; what still runs when the test ends is killed."""
    running = []

    def begin(run: Path, environment: dict[str, str], **changes: object) -> subprocess.Popen[str]:
        settings = SETTINGS | {key.replace("__", "."): value for key, value in changes.items()}
        process = subprocess.Popen(
            [sys.executable, "-m", "tfnmt.train", "--dataset=copy", f"--run_dir={run}",
             f"--cache_dir={run.parent / 'cache'}",
             *(f"--set={key}={value}" for key, value in settings.items())],
            stderr=subprocess.PIPE, text=True, env=os.environ | environment,
        )  # fmt: skip
        running.append(process)
        return process

    yield begin
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def workers(start: Start) -> Workers:
    """Starts two workers; the first one is the chief."""

    def begin(run: Path, **changes: object) -> list[subprocess.Popen[str]]:
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


def finish(process: subprocess.Popen[str], code: int = 0) -> str:
    errors = process.communicate(timeout=240)[1]
    assert process.returncode == code, errors
    return errors


def weights(run: Path) -> np.ndarray:
    """All weights but the biases of keys, whose gradient is nothing but rounding."""
    found: list[np.ndarray] = []

    def note(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset) and not name.endswith("/key/vars/1"):
            found.append(np.ravel(item[()]))

    with h5py.File(Run(run).weights()) as file:
        file.visititems(note)
    return np.concatenate(found)


def wait_for_checkpoint(run: Path, process: subprocess.Popen[str]) -> None:
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
    assert "2 device(s)" in finish(chief)
    assert "val BLEU" not in finish(other)
    one, two = losses(tmp_path / "one"), losses(tmp_path / "two")
    assert len(one) == len(two) == 20
    assert two == pytest.approx(one, rel=1e-5)
    np.testing.assert_allclose(weights(tmp_path / "two"), weights(tmp_path / "one"), atol=1e-5)


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
