"""The memory that a training's tensors may take.

What counts is what TensorFlow's own pool holds, of the GPU or else of the CPU: what it gives out is
counted exactly, and it can be told its size, so that a batch too large ends as an error.

Nothing here imports TensorFlow before it looks at it: `limit_memory` must come before that.
"""

import os
from pathlib import Path

from tfnmt.quiet import import_tensorflow

POOL_SIZE = "TF_MKL_ALLOC_MAX_BYTES"
"""The environment variable that TensorFlow's pool of CPU memory takes its size from, in bytes."""

OUTSIDE = 1_500_000_000
"""Bytes that a training on a CPU takes outside the pool, at most: the libraries and its graphs."""

SMALLEST_POOL = 2**28


def available_memory() -> int:
    """Bytes that a training's tensors may take on the device that counts."""
    import_tensorflow()
    limits = _gpu_limits()
    return limits[0] if limits else int(os.environ.get(POOL_SIZE) or _pool_size())


def limit_memory() -> None:
    """Makes TensorFlow fail with an error where a CPU's memory would run out.

    To be called before TensorFlow makes its first tensor; a limit of the user's own stays. (A limit
    of the process, RLIMIT_DATA, lets the pool take everything: what fails next is something else,
    which aborts.)
    """
    size = int(os.environ.setdefault(POOL_SIZE, str(_pool_size())))
    if os.environ.get("TF_ENABLE_ONEDNN_OPTS") == "0":  # by the user: that pool is oneDNN's
        os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "true"
        os.environ["TF_CPU_BFC_MEM_LIMIT_IN_MB"] = str(size // 2**20)


def counted_device() -> str:
    """The device whose memory counts: the first GPU, where there is one, else the CPU."""
    return "GPU:0" if _gpu_limits() else "CPU:0"


def _gpu_limits() -> list[int]:
    """Bytes that TensorFlow takes of each GPU. It tells so to itself alone."""
    import tensorflow as tf
    from tensorflow.python import pywrap_tfe
    from tensorflow.python.client import pywrap_tf_session
    from tensorflow.python.eager import context

    if not tf.config.list_physical_devices("GPU"):
        return []
    context.ensure_initialized()
    devices = pywrap_tfe.TFE_ContextListDevices(context.context()._handle)
    try:
        return [
            pywrap_tf_session.TF_DeviceListMemoryBytes(devices, number)
            for number in range(pywrap_tfe.TF_DeviceListCount(devices))
            if pywrap_tfe.TF_DeviceListType(devices, number) == "GPU"
        ]
    finally:
        pywrap_tfe.TF_DeleteDeviceList(devices)


def _pool_size() -> int:
    """Bytes for tensors on the CPU: what the machine and the control group leave this process."""
    proc = Path("/proc")
    left = min(
        [
            _kilobytes(proc / "meminfo", "MemAvailable"),
            *_cgroup_left(proc / "self/cgroup", Path("/sys/fs/cgroup")),
        ]
    )
    own = _kilobytes(proc / "self/status", "RssAnon")  # is a part of OUTSIDE
    return max(SMALLEST_POOL, left + own - OUTSIDE)


def _kilobytes(path: Path, name: str) -> int:
    """A value of a file of lines `name: number kB`, in bytes."""
    values = dict(line.split(":", 1) for line in path.read_text().splitlines())
    return int(values[name].split()[0]) * 1024


def _cgroup_left(membership: Path, root: Path) -> list[int]:
    """Bytes that the control groups of a process leave it, each that has a limit (v2 and v1)."""
    left = []
    for line in membership.read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            names, base = ("memory.max", "memory.current", "inactive_file"), root
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            base = root / "memory"
        else:
            continue
        inner = base / path.lstrip("/")
        for folder in (inner, *inner.parents):
            if folder.is_relative_to(base):
                left.extend(_group_left(folder, *names))
    return left


def _group_left(folder: Path, limit: str, usage: str, cache: str) -> list[int]:
    """What one group leaves, if it is there and has a limit. Its old file cache can be freed."""
    path = folder / limit
    if not path.is_file() or (text := path.read_text().strip()) == "max":
        return []
    stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    used = int((folder / usage).read_text()) - int(stat[cache])
    return [int(text) - used]
