"""System tests of the executors: the same bytes from any number of workers, also after kills."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

import pytest

from tests.system.conftest import wait_until
from tfnmt import score, translate
from tfnmt.data.corpora.toy import grammar

pytestmark = pytest.mark.skipif(
    find_spec("ray") is None, reason="needs Ray; install the extra `cluster`"
)

ROOT = Path(__file__).parents[2]
PAIRS = list(islice(grammar.pairs("test"), 150))

Call = Callable[..., None]


CLUSTER = """
import sys
from ray.cluster_utils import Cluster

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
print(cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of a cluster with two CPUs, whose workers have the priority of the tests."""
    with subprocess.Popen(
        [sys.executable, "-c", CLUSTER],
        env=os.environ | {"RAY_worker_niceness": "0"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.stdin.close()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A file with bytes that are not UTF-8, a long line, and no end of the last line."""
    path = tmp_path / "in.en"
    lines = [source for source, _ in PAIRS]
    lines[40], lines[70], lines[100] = "", "word " * 80, "caf\udce9"
    path.write_bytes("\n".join(lines).encode("utf-8", "surrogateescape"))
    return path


def run(command: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", f"tfnmt.{command}", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def in_ray(command: str, address: str, *arguments: object) -> str:
    """Run a command with two workers; return its stderr."""
    done = run(command, *arguments, "--executor=ray", f"--address={address}", "--workers=2")
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize(
    "flags",
    [
        ["--beam_size=1", "--scores"],
        ["--beam_size=3", "--nbest=2"],
        ["--sample", "--seed=7", "--json"],
    ],
)
def test_translations_are_those_of_the_local_executor(
    call: Call, tiny_run: Path, address: str, source: Path, tmp_path: Path, flags: list[str]
) -> None:
    given = (f"--model={tiny_run}", f"--input={source}", "--shard_lines=32", *flags)
    call(translate, *given, f"--output={tmp_path / 'local'}")
    printed = in_ray("translate", address, *given, f"--output={tmp_path / 'ray'}")
    found = (tmp_path / "ray").read_bytes()
    assert found == (tmp_path / "local").read_bytes()
    assert found.count(b"\n") == len(PAIRS)
    assert "line 71: longer than 64 tokens" in printed
    assert "line 101: contains U+FFFD" in printed
    assert "150 lines in" in printed


def test_one_and_four_workers_write_the_lines_of_the_local_executor(
    call: Call, source: Path, tmp_path: Path
) -> None:
    model = ("--model=tatoeba-en-de-fr-es", "--source=en", "--target=de")
    given = (*model, f"--input={source}", "--shard_lines=16", "--scores")
    call(translate, *given, f"--output={tmp_path / 'local'}")
    for workers in (1, 4):
        output = tmp_path / f"{workers}"
        done = run(
            "translate", *given, f"--output={output}", "--executor=ray", f"--workers={workers}"
        )
        assert done.returncode == 0, done.stderr
        assert f"Ray: {workers} worker(s)" in done.stderr
        assert output.read_bytes() == (tmp_path / "local").read_bytes()


def test_scores_of_a_folder_are_those_of_the_local_executor(
    call: Call, tiny_run: Path, address: str, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name, pairs in (("a.tsv", PAIRS[:100]), ("b.tsv", PAIRS[100:])):
        (folder / name).write_text("".join(f"{a}\t{b}\n" for a, b in pairs))
    given = (f"--model={tiny_run}", f"--input={folder}", "--shard_lines=32")
    call(score, *given, f"--output={tmp_path / 'local'}")
    in_ray("score", address, *given, f"--output={tmp_path / 'ray'}")
    for name, lines in (("a.tsv", 100), ("b.tsv", 50)):
        found = (tmp_path / "ray" / name).read_bytes()
        assert found == (tmp_path / "local" / name).read_bytes()
        assert found.count(b"\n") == lines


def test_killed_driver_resumes_with_its_finished_parts(
    call: Call, tiny_run: Path, source: Path, tmp_path: Path
) -> None:
    source.write_text("".join(f"{a}\n" for a, _ in PAIRS * 10))
    given = (f"--model={tiny_run}", f"--input={source}", "--shard_lines=64")
    output, parts = tmp_path / "out", tmp_path / ".out.partial"
    ray = ["--executor=ray", "--workers=2"]
    command = [sys.executable, "-m", "tfnmt.translate", *given, f"--output={output}", *ray]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as driver:
        wait_until(lambda: driver.poll() is not None or len(list(parts.glob("part-*"))) >= 2)
        driver.send_signal(signal.SIGKILL)
    assert driver.returncode == -signal.SIGKILL
    finished = {path.name: path.stat().st_mtime_ns for path in parts.glob("part-*")}
    assert 2 <= len(finished) < 24
    for name in finished:
        os.link(parts / name, tmp_path / name)  # to see it after the parts are removed
    call(translate, *given, f"--output={output}", "--resume")
    assert finished == {name: (tmp_path / name).stat().st_mtime_ns for name in finished}
    assert not parts.exists()
    call(translate, *given, f"--output={tmp_path / 'whole'}")
    assert output.read_bytes() == (tmp_path / "whole").read_bytes()


def test_text_without_a_file_is_refused(tiny_run: Path) -> None:
    done = run("translate", f"--model={tiny_run}", "--executor=ray", "a text")
    assert done.returncode == 2
    assert "not with texts; give --input and --output" in done.stderr
