"""The hosts of a training: what TF_CONFIG or Slurm tells, before TensorFlow is imported."""

import os
from typing import Self

from pydantic import BaseModel, ValidationError, model_validator

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
    cluster, task = (config := _tf_config()).cluster, config.task
    if len(_workers(config)) < 2 or task is None:
        return True
    return task.type == "chief" or ("chief" not in cluster and task.index == 0)


class _Task(BaseModel):
    type: str
    index: int  # TensorFlow takes "0" as well, and so does this


class _TFConfig(BaseModel):
    cluster: dict[str, list[str]] = {}
    task: _Task | None = None

    @model_validator(mode="after")
    def _knows_its_task(self) -> Self:
        if len(_workers(self)) > 1 and self.task is None:
            raise ValueError("task is missing: which of the workers this is")
        return self


def _workers(config: _TFConfig) -> list[str]:
    return config.cluster.get("chief", []) + config.cluster.get("worker", [])


def _tf_config() -> _TFConfig:
    try:
        return _TFConfig.model_validate_json(os.environ.get("TF_CONFIG") or "{}")
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        problem = first["msg"].removeprefix("Value error, ")  # pydantic's, before words of ours
        raise UsageError(
            f"TF_CONFIG: {where and f'{where}: '}{problem}; it names the cluster and this "
            "task, see docs/multi-host.md"
        ) from error
