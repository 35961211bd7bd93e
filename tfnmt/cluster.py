"""The hosts of a training: what TF_CONFIG or Slurm tells, before TensorFlow is imported."""

import json
import os
from typing import Any

from tfnmt.errors import UsageError


def by_tf_config() -> bool:
    """Whether TF_CONFIG names several workers."""
    return len(_workers(_tf_config())) > 1


def by_slurm() -> bool:
    """Whether Slurm runs this command in several tasks at once."""
    return not by_tf_config() and int(os.environ.get("SLURM_STEP_NUM_TASKS", "1")) > 1


def is_spread() -> bool:
    """Whether several processes train together."""
    return by_tf_config() or by_slurm()


def is_chief() -> bool:
    """Whether this process writes: the only one, or the first of several."""
    if by_slurm():
        return os.environ.get("SLURM_PROCID", "0") == "0"
    config = _tf_config()
    if len(_workers(config)) < 2:
        return True
    task = config.get("task", {})
    has_chief = "chief" in config["cluster"]
    return task.get("type") == "chief" or (not has_chief and task.get("index") == 0)


def _workers(config: Any) -> list[str]:
    cluster: dict[str, list[str]] = config.get("cluster", {})
    return cluster.get("chief", []) + cluster.get("worker", [])


def _tf_config() -> Any:
    text = os.environ.get("TF_CONFIG", "{}")
    try:
        config = json.loads(text)
    except ValueError as error:
        raise UsageError(
            f"TF_CONFIG: not JSON ({error}); it names the cluster and this task, see "
            "docs/multi-host.md"
        ) from error
    return config if isinstance(config, dict) else {}
