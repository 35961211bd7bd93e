"""The Ray executor, with one embedded Ray and real processes."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.tfnmt.runtime.toy_work import Uppercase, joined, make_shards, text
from tfnmt.errors import UserError
from tfnmt.runtime.ray_executor import (
    RayExecutor,
    Resources,
    _worker_environment,
    connect,
    find_resources,
)

ROOT = Path(__file__).parents[3]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray; install the extra `cluster`"),
]

EMBEDDED = """
import os, subprocess
from tfnmt.runtime.ray_executor import RayExecutor

with RayExecutor(None, 1, 0, stall_seconds=60):
    import ray

    assert [node["NodeManagerAddress"] for node in ray.nodes()] == ["127.0.0.1"]
    table = subprocess.run(["ss", "-ltnpH"], capture_output=True, text=True, check=True).stdout
    ours = [line for line in table.splitlines() if f"pid={os.getpid()}," in line]
    assert ours and all("127.0.0.1]:" in line or " 127.0.0.1:" in line for line in ours), table
    assert os.environ["RAY_AUTH_MODE"] == "token" and len(os.environ["RAY_AUTH_TOKEN"]) == 64
    print("local")
"""
"""Checks the listening ports of an embedded Ray."""


@pytest.fixture(scope="module")
def executor() -> Iterator[RayExecutor]:
    with RayExecutor(None, 2, 0, stall_seconds=10) as started:
        yield started


@pytest.mark.parametrize("trap", ["once kill", "once boom", "once hang"])
def test_output_is_complete_if_a_worker_fails_once(
    executor: RayExecutor, trap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = text(trap)
    shards = make_shards(tmp_path, content)
    reported: list[int] = []
    results = list(executor.run(Uppercase(tmp_path), shards, reported.append))
    assert sorted(shard.number for shard, _ in results) == list(range(len(shards)))
    assert joined(tmp_path, shards) == content.upper()
    assert sum(reported) == 200  # the progress of the failed attempt was taken back
    retries = [line for line in capsys.readouterr().err.splitlines() if "trying again" in line]
    assert len(retries) == 1
    assert "shard 00006 (lines 97-112): attempt 1 failed" in retries[0]


def test_shards_that_always_fail_are_named_and_the_others_are_kept(
    executor: RayExecutor, tmp_path: Path
) -> None:
    shards = make_shards(tmp_path, text("always boom", "always refuse"))
    with pytest.raises(UserError) as raised:
        list(executor.run(Uppercase(tmp_path), shards, lambda units: None))
    problems = "\n".join(sorted(raised.value.problems))
    assert "shard 00004 (lines 65-80): failed 3 times, at last because of ValueError" in problems
    assert "the line: refused; omit it" in problems
    assert [shard.number for shard in shards if not shard.part.exists()] == [4, 8]


def test_consumer_that_blocks_does_not_stall_workers(
    executor: RayExecutor,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(executor, "_stall_seconds", 2.0)
    content = text("sleep")
    shards = make_shards(tmp_path, content)
    for shard, _ in executor.run(Uppercase(tmp_path), shards, lambda units: None):
        if shard.number == 7:  # while the other worker sleeps in shard 6
            time.sleep(2.5)
    assert joined(tmp_path, shards) == content.upper()
    assert "trying again" not in capsys.readouterr().err


def test_work_that_cannot_be_loaded_is_an_error(executor: RayExecutor, tmp_path: Path) -> None:
    shards = make_shards(tmp_path, text())
    with pytest.raises(UserError, match="no such model; choose another"):
        list(executor.run(Unloadable(), shards, lambda units: None))


@pytest.mark.skipif(shutil.which("ss") is None, reason="needs ss, from iproute2")
def test_embedded_ray_is_reachable_from_this_machine_with_a_token_only() -> None:
    assert run_python(EMBEDDED).strip() == "local"


def test_workers_share_the_cpus(executor: RayExecutor) -> None:
    cpus = find_resources(1, 0).cpus
    assert cpus == len(os.sched_getaffinity(0))
    assert find_resources(3 * int(cpus), 0).cpus == 0.33


def test_missing_gpus_are_reported(executor: RayExecutor) -> None:
    with pytest.raises(UserError, match="--gpus_per_worker=1: Ray has GPUs for 0 workers"):
        find_resources(None, 1)


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        (0, {"TFNMT_CPUS": "4", "CUDA_VISIBLE_DEVICES": "-1"}),
        (0.5, {"TFNMT_CPUS": "4", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}),
        (2, {"TFNMT_CPUS": "4"}),
    ],
)
def test_worker_takes_all_memory_of_its_own_gpus_only(
    gpus: float, expected: dict[str, str]
) -> None:
    assert _worker_environment(Resources(1, 4, gpus)) == expected


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere", "127.0.0.1:99999", ":1"])
def test_unreachable_cluster_is_reported(address: str) -> None:
    with pytest.raises(UserError, match=f"--address={address}: no Ray answers"):
        connect(address)


def run_python(code: str) -> str:
    """Run code in a new process; return its output."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class Unloadable:
    """Work whose model is missing."""

    def load(self) -> None:
        raise UserError("model: no such model; choose another")
