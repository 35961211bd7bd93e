"""The devices and hosts of a training run. Several of them are in tests/system."""

import json
import os

import pytest
import tensorflow as tf

from tfnmt.training import distribution
from tfnmt.training.distribution import streams_per_replica


@pytest.mark.parametrize(("kind", "streams"), [("GPU", 1), ("CPU", 8)])
def test_replica_on_a_gpu_has_one_stream(
    monkeypatch: pytest.MonkeyPatch, kind: str, streams: int
) -> None:
    monkeypatch.setattr(distribution, "PARALLEL_STREAMS", 8)
    monkeypatch.setattr(distribution, "device_kind", lambda: kind)
    assert streams_per_replica(tf.distribute.get_strategy()) == streams


def test_hosts_of_slurm_keep_the_order_of_its_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", "")
    monkeypatch.setenv("SLURM_STEP_NODELIST", "gpu[9-10],login2")
    monkeypatch.setenv("SLURM_PROCID", "1")
    distribution._set_tf_config()
    config = json.loads(os.environ["TF_CONFIG"])
    hosts = [worker.split(":")[0] for worker in config["cluster"]["worker"]]
    assert hosts == ["gpu9", "gpu10", "login2"]
    assert config["task"]["index"] == 1
