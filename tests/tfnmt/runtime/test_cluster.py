import json
import os

import pytest

from tfnmt.errors import UsageError
from tfnmt.runtime.cluster import (
    FIRST_PORT,
    check_slurm,
    is_chief,
    is_distributed,
    slurm_tf_config,
    uses_slurm,
    uses_tf_config,
)

WORKERS = {"worker": ["a:1", "b:1"]}


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    for name in os.environ:
        if name.startswith("SLURM_"):
            monkeypatch.delenv(name)


def set_tf_config(monkeypatch: pytest.MonkeyPatch, cluster: object, kind: str, index: int) -> None:
    config = {"cluster": cluster, "task": {"type": kind, "index": index}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))


def test_single_process_is_chief() -> None:
    assert is_chief()
    assert not is_distributed()


@pytest.mark.parametrize(
    ("cluster", "kind", "index", "chief"),
    [
        (WORKERS, "worker", 0, True),
        (WORKERS, "worker", 1, False),
        ({"chief": ["a:1"], "worker": ["b:1"]}, "chief", 0, True),
        ({"chief": ["a:1"], "worker": ["b:1"]}, "worker", 0, False),
    ],
)
def test_tf_config_has_one_chief(
    monkeypatch: pytest.MonkeyPatch, cluster: object, kind: str, index: int, chief: bool
) -> None:
    set_tf_config(monkeypatch, cluster, kind, index)
    assert uses_tf_config()
    assert is_chief() == chief


def test_tf_config_with_one_worker_is_not_distributed(monkeypatch: pytest.MonkeyPatch) -> None:
    set_tf_config(monkeypatch, {"worker": ["a:1"]}, "worker", 0)
    assert is_chief()
    assert not is_distributed()


@pytest.mark.parametrize("number", [0, 1])
def test_slurm_chief_is_process_zero(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    monkeypatch.setenv("SLURM_PROCID", str(number))
    assert uses_slurm()
    assert is_chief() == (number == 0)


@pytest.mark.parametrize("index", [0, "0"])
def test_tf_config_accepts_quoted_index(monkeypatch: pytest.MonkeyPatch, index: int | str) -> None:
    """TensorFlow also accepts an index in quotation marks."""
    config = {"cluster": WORKERS, "task": {"type": "worker", "index": index}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    assert is_chief()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{cluster", "Invalid JSON"),
        ("[]", "an object"),
        ('{"cluster": ["a", "b"]}', "cluster: "),
        ('{"cluster": {"worker": "a:1"}}', "cluster.worker: "),
        ('{"cluster": {"worker": ["a:1", "b:1"]}}', "task is missing"),
        ('{"task": {"type": "worker", "index": "first"}}', "task.index: "),
    ],
)
def test_invalid_tf_config_is_reported(
    monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(UsageError, match=rf"^TF_CONFIG: .*{message}.*multi-host\.md") as caught:
        is_distributed()
    assert "Value error" not in str(caught.value)


def test_invalid_number_of_slurm_tasks_is_a_user_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "two")
    with pytest.raises(UsageError, match=r"^SLURM_STEP_NUM_TASKS=two: "):
        uses_slurm()


def test_slurm_task_has_a_port_of_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_PROCID", "1")
    monkeypatch.setenv("SLURM_JOB_ID", "12007")
    config = json.loads(slurm_tf_config(["d9", "d10"]))
    port = FIRST_PORT + 7
    assert config == {
        "cluster": {"worker": [f"d9:{port}", f"d10:{port}"]},
        "task": {"type": "worker", "index": 1},
    }


def test_several_slurm_tasks_on_a_node_are_a_user_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_STEP_NUM_NODES", "2")
    check_slurm()
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    check_slurm()
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "8")
    with pytest.raises(UsageError, match=r"^SLURM_STEP_NUM_TASKS=8: .*--ntasks-per-node=1"):
        check_slurm()
