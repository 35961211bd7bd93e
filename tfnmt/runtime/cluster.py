"""The hosts of a distributed training run, from TF_CONFIG or Slurm. Does not need TensorFlow."""

import json
import os
from collections.abc import Sequence
from typing import Self

from pydantic import BaseModel, ValidationError, model_validator

from tfnmt.errors import UsageError

FIRST_PORT, PORTS = 20_000, 12_000
"""The ports of workers under Slurm, below those that Linux uses for outgoing connections."""


def uses_tf_config() -> bool:
    """Return whether TF_CONFIG names several workers.

    Raises:
        UsageError: TF_CONFIG is invalid.
    """
    return len(_workers(_tf_config())) > 1


def uses_slurm() -> bool:
    """Return whether Slurm runs this command as several tasks. TF_CONFIG takes precedence."""
    return not uses_tf_config() and _slurm_tasks() > 1


def _slurm_tasks() -> int:
    return _slurm_number("SLURM_STEP_NUM_TASKS")


def _slurm_number(name: str) -> int:
    text = os.environ.get(name) or "1"
    if not text.isdecimal():
        raise UsageError(f"{name}={text}: not a number; unset it or start with srun")
    return int(text)


def check_slurm() -> None:
    """Check that Slurm runs one task per node, if it runs several tasks.

    Raises:
        UsageError: A node has several tasks.
    """
    tasks, nodes = _slurm_tasks(), _slurm_number("SLURM_STEP_NUM_NODES")
    if uses_slurm() and tasks != nodes:
        raise UsageError(
            f"SLURM_STEP_NUM_TASKS={tasks}: more than the {nodes} node(s); start one task per node "
            "(srun --ntasks-per-node=1), which uses all GPUs of the node"
        )


def slurm_tf_config(hosts: Sequence[str]) -> str:
    """Return TF_CONFIG for this Slurm task. The port depends on the job, so jobs can share nodes.

    Args:
        hosts: The host of each task.
    """
    port = FIRST_PORT + _slurm_number("SLURM_JOB_ID") % PORTS
    workers = [f"{host}:{port}" for host in hosts]
    task = {"type": "worker", "index": int(os.environ["SLURM_PROCID"])}
    return json.dumps({"cluster": {"worker": workers}, "task": task})


def is_distributed() -> bool:
    """Return whether several processes train together."""
    return uses_tf_config() or uses_slurm()


def is_chief() -> bool:
    """Return whether this process writes files: the only process, or the first of several."""
    if uses_slurm():
        return os.environ.get("SLURM_PROCID", "0") == "0"
    cluster, task = (config := _tf_config()).cluster, config.task
    if len(_workers(config)) < 2 or task is None:
        return True
    return task.type == "chief" or ("chief" not in cluster and task.index == 0)


class _Task(BaseModel):
    type: str
    index: int  # also accepts "0", as TensorFlow does


class _TFConfig(BaseModel):
    cluster: dict[str, list[str]] = {}
    task: _Task | None = None

    @model_validator(mode="after")
    def _requires_task(self) -> Self:
        if len(_workers(self)) > 1 and self.task is None:
            raise ValueError("task is missing: it says which worker this process is")
        return self


def _workers(config: _TFConfig) -> list[str]:
    return config.cluster.get("chief", []) + config.cluster.get("worker", [])


def _tf_config() -> _TFConfig:
    try:
        return _TFConfig.model_validate_json(os.environ.get("TF_CONFIG") or "{}")
    except ValidationError as error:
        first = error.errors()[0]
        location = ".".join(map(str, first["loc"]))
        prefix = f"{location}: " if location else ""
        problem = first["msg"].removeprefix("Value error, ")  # pydantic adds it to our own messages
        raise UsageError(
            f"TF_CONFIG: {prefix}{problem}; set the cluster and the task of this process, see "
            "docs/how-to/multi-host.md"
        ) from error
