import json

import pytest

from tfnmt.errors import UsageError
from tfnmt.runtime.cluster import by_slurm, by_tf_config, is_chief, is_spread

WORKERS = {"worker": ["a:1", "b:1"]}


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TF_CONFIG", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)


def tell(monkeypatch: pytest.MonkeyPatch, cluster: object, kind: str, index: int) -> None:
    config = {"cluster": cluster, "task": {"type": kind, "index": index}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))


def test_a_process_alone_is_its_own_chief() -> None:
    assert is_chief()
    assert not is_spread()


@pytest.mark.parametrize(
    ("cluster", "kind", "index", "chief"),
    [
        (WORKERS, "worker", 0, True),
        (WORKERS, "worker", 1, False),
        ({"chief": ["a:1"], "worker": ["b:1"]}, "chief", 0, True),
        ({"chief": ["a:1"], "worker": ["b:1"]}, "worker", 0, False),
    ],
)
def test_of_several_workers_one_is_the_chief(
    monkeypatch: pytest.MonkeyPatch, cluster: object, kind: str, index: int, chief: bool
) -> None:
    tell(monkeypatch, cluster, kind, index)
    assert by_tf_config()
    assert is_chief() == chief


def test_a_cluster_of_one_is_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    tell(monkeypatch, {"worker": ["a:1"]}, "worker", 0)
    assert is_chief()
    assert not is_spread()


@pytest.mark.parametrize("number", [0, 1])
def test_slurm_tells_by_the_number_of_the_process(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    monkeypatch.setenv("SLURM_PROCID", str(number))
    assert by_slurm()
    assert is_chief() == (number == 0)


@pytest.mark.parametrize("index", [0, "0"])
def test_the_first_worker_writes_however_its_number_is_written(
    monkeypatch: pytest.MonkeyPatch, index: int | str
) -> None:
    """TensorFlow takes a number between quotation marks too."""
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
        ('{"cluster": {"worker": ["a:1", "b:1"]}}', "task is missing: which of the workers"),
        ('{"task": {"type": "worker", "index": "first"}}', "task.index: "),
    ],
)
def test_what_tells_no_cluster_is_told(
    monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(UsageError, match=rf"^TF_CONFIG: .*{message}.*docs/multi-host.md") as caught:
        is_spread()
    assert "Value error" not in str(caught.value)
