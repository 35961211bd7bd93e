"""The scripts of export/cluster, run by Slurm on two nodes: real daemons, networks and signals."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

import pytest

from tests.cluster.slurm import Cluster, running_cluster, why_not
from tests.system.trainings import arguments
from tfnmt import translate
from tfnmt.data.corpora.toy import grammar
from tfnmt.runs.run import Run
from tfnmt.runtime.startup import CPU_COUNT

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "export" / "cluster"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if reason := why_not():
        pytest.skip(f"Slurm: {reason}")
    with running_cluster(tmp_path_factory.mktemp("slurm")) as running:
        yield running


def resumed_steps(text: str) -> list[int]:
    """Return the steps after which the first worker resumed."""
    return [
        int(step.replace(",", "")) for step in re.findall(r"resuming after step ([\d,]+)", text)
    ]


def test_training_job_resumes_after_a_killed_worker_and_at_its_time_limit(
    cluster: Cluster, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    changes = {
        "tokenizer__vocab_size": 400,
        "training__max_steps": 1_000_000,
        "training__validation_steps": 1_000_000,
        "training__checkpoint_steps": 20,
    }
    job = cluster.submit(
        f"--chdir={ROOT}",
        str(SCRIPTS / "slurm-train.sh"),
        *arguments(run, changes),
        "--dataset=toy",
        TFNMT_PYTHON=sys.executable,
        TFNMT_REQUEUE_AFTER="0",
    )
    cluster.wait_for(lambda: Run(run).checkpoints().all())
    assert "2 CPU device(s)" in job.text()
    os.kill(job.process(1), signal.SIGKILL)
    cluster.wait_for(lambda: len(resumed_steps(job.text())) == 2)
    assert job.field("Restarts") == "1"

    # Between one and two minutes are left, and the script requests a signal when two are left.
    hours, minutes, _ = map(int, job.field("RunTime").split(":"))
    limit = f"TimeLimit={60 * hours + minutes + 2}"
    cluster.run("scontrol", "update", f"JobId={job.number}", limit)
    cluster.wait_for(lambda: job.field("Restarts") == "2")
    assert job.text().count("stopped and saved") == 2
    cluster.run("scontrol", "update", f"JobId={job.number}", "TimeLimit=60")
    (saved,) = {int(path.name) for path in Run(run).checkpoints().all()[-1:]}
    cluster.wait_for(lambda: len(resumed_steps(job.text())) == 4)
    assert resumed_steps(job.text())[2:] == [saved, saved]

    cluster.wait_for(lambda: int(Run(run).checkpoints().all()[-1].name) > saved)
    cluster.run("scancel", job.number)
    cluster.wait_for(lambda: cluster.idle_nodes() == 2)
    assert job.field("JobState") == "CANCELLED"
    assert job.text().count("stopped and saved") == 4
    assert not Run(run).finished


@pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray; install the extra `cluster`")
def test_ray_job_translates_on_two_nodes(
    cluster: Cluster, call: Callable[..., None], tiny_run: Path, tmp_path: Path
) -> None:
    source = tmp_path / "in.en"
    source.write_text("".join(f"{pair[0]}\n" for pair in islice(grammar.pairs("test"), 150)))
    given = (f"--model={tiny_run}", f"--input={source}", "--beam_size=1", "--shard_lines=32")
    call(translate, *given, f"--output={tmp_path / 'local'}")
    job = cluster.submit(
        f"--chdir={ROOT}",
        "--nodes=2",
        f"--cpus-per-task={CPU_COUNT}",
        str(SCRIPTS / "slurm.sh"),
        "translate",
        *given,
        f"--output={tmp_path / 'ray'}",
        TFNMT_PYTHON=sys.executable,
        RAY_worker_niceness="0",  # the priority of the tests
    )
    cluster.wait_for(lambda: job.field("JobState") not in ("PENDING", "RUNNING", "COMPLETING"))
    assert job.field("JobState") == "COMPLETED", job.text()
    assert f"Ray: 2 worker(s) with {CPU_COUNT} CPU(s) each" in job.text()
    assert (tmp_path / "ray").read_bytes() == (tmp_path / "local").read_bytes()


def test_ray_script_fails_if_ray_does_not_start(tmp_path: Path) -> None:
    """`ray symmetric-run` exits with status 0 then, as this program does."""
    (tmp_path / "python").symlink_to(sys.executable)
    (tmp_path / "ray").write_text("#!/bin/sh\n")
    (tmp_path / "ray").chmod(0o755)
    done = subprocess.run(
        [SCRIPTS / "slurm.sh", "translate"],
        env=os.environ | {"TFNMT_PYTHON": str(tmp_path / "python")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "Ray did not start" in done.stderr
