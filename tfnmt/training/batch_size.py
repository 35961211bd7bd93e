"""The batch size that fits into memory, predicted from measurements of small batches.

Nothing here imports TensorFlow before it computes, so that this process does not occupy the GPU
while another one measures for it.
"""

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from tfnmt.config import Config
from tfnmt.data.preparation.tokenizer import BOS, EOS
from tfnmt.errors import UserError
from tfnmt.runtime.processes import values_of_process
from tfnmt.runtime.startup import import_tensorflow

POOL_SIZE = "TF_MKL_ALLOC_MAX_BYTES"
"""The environment variable with the size of TensorFlow's pool of CPU memory, in bytes."""

OUTSIDE_POOL = 1_500_000_000
"""Bytes that a training run on a CPU needs outside the pool, at most: libraries and graphs."""

SMALLEST_POOL = 2**28


def available_memory() -> int:
    """Return the bytes that tensors may take on the training device."""
    import_tensorflow()
    limits = _memory_limits("GPU")
    return limits[0] if limits else int(os.environ.get(POOL_SIZE) or _pool_size())


def limit_memory() -> None:
    """Make TensorFlow raise an error before the memory of a CPU runs out.

    Call it before TensorFlow creates its first tensor. A limit that the user has set is kept. (A
    process limit, RLIMIT_DATA, does not help: the pool takes all of it, and the next allocation of
    something else aborts the process.)
    """
    size = int(os.environ.setdefault(POOL_SIZE, str(_pool_size())))
    # POOL_SIZE limits oneDNN's pool. If the user disabled oneDNN, limit TensorFlow's own allocator.
    if os.environ.get("TF_ENABLE_ONEDNN_OPTS") == "0":
        os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "true"
        os.environ["TF_CPU_BFC_MEM_LIMIT_IN_MB"] = str(size // 2**20)


def training_device() -> str:
    """Return the device whose memory is measured: the first GPU if there is one, else the CPU."""
    return "GPU:0" if _memory_limits("GPU") else "CPU:0"


def _memory_limits(kind: str) -> list[int]:
    """Return the bytes that TensorFlow takes of each device of a kind, `GPU` or `CPU`.

    It has no public function for that.
    """
    import tensorflow as tf
    from tensorflow.python import pywrap_tfe
    from tensorflow.python.client import pywrap_tf_session
    from tensorflow.python.eager import context

    if not tf.config.list_physical_devices(kind):
        return []
    context.ensure_initialized()
    devices = pywrap_tfe.TFE_ContextListDevices(context.context()._handle)
    try:
        return [
            pywrap_tf_session.TF_DeviceListMemoryBytes(devices, number)
            for number in range(pywrap_tfe.TF_DeviceListCount(devices))
            if pywrap_tfe.TF_DeviceListType(devices, number) == kind
        ]
    finally:
        pywrap_tfe.TF_DeleteDeviceList(devices)


def _pool_size() -> int:
    """Return the bytes for tensors on the CPU: the free memory of machine and control groups."""
    proc = Path("/proc")
    free = min(
        [
            _kilobytes(proc / "meminfo", "MemAvailable"),
            *_cgroup_free(proc / "self/cgroup", Path("/sys/fs/cgroup")),
        ]
    )
    used = _kilobytes(proc / "self/status", "RssAnon")  # by this process; part of OUTSIDE_POOL
    return max(SMALLEST_POOL, free + used - OUTSIDE_POOL)


def _kilobytes(path: Path, name: str) -> int:
    """Return a value from a file of lines `name: number kB`, in bytes."""
    values = dict(line.split(":", 1) for line in path.read_text().splitlines())
    return int(values[name].split()[0]) * 1024


def _cgroup_free(membership: Path, root: Path) -> list[int]:
    """Return the free bytes of each control group of a process that has a limit (v1 and v2).

    Args:
        membership: The process's file `/proc/<pid>/cgroup`.
        root: The folder where the control groups are mounted.
    """
    free = []
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
                free.extend(_group_free(folder, *names))
    return free


def _group_free(folder: Path, limit: str, usage: str, cache: str) -> list[int]:
    """Return the free bytes of one group; empty if it is not mounted or has no limit.

    The group's inactive file cache counts as free.
    """
    path = folder / limit
    if not path.is_file() or (text := path.read_text().strip()) == "max":
        return []
    stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    used = int((folder / usage).read_text()) - int(stat[cache])
    return [int(text) - used]


SAFE_SHARE = 0.8
"""Share of the memory for a batch: the pool becomes fragmented, and evaluation needs some, too."""

GRANULARITY = 256
"""Batch sizes are multiples of this number of padded tokens."""

MAX_PADDED_TOKENS = 25_000
"""The paper's batch size (section 5.1). Larger batches give fewer steps, hardly better ones."""

MEASURED_ROWS = (1, 16, 64)
"""Rows of the batches that are measured."""

OUT_OF_MEMORY_CODES = (-6, -9, -11)
"""Exit codes of a process without memory: TensorFlow's abort, the kernel, a null pointer."""


def fitting_batch_tokens(config: Config, vocab_size: int) -> int:
    """Return the largest batch size in padded tokens that fits, at most MAX_PADDED_TOKENS.

    Args:
        config: The configuration of the training run.
        vocab_size: The size of the vocabulary.

    Raises:
        UserError: Not even one pair of data.max_length fits.
    """
    available, peaks = _measure_in_process(config, vocab_size, _measured_sizes(config))
    return _predict_fitting_tokens(config, available, peaks)


def out_of_memory(config: Config, vocab_size: int) -> UserError:
    """Return the error for a training run that ran out of memory, with a batch size that fits.

    It is measured in this process, because this process holds the memory.

    Args:
        config: The configuration of the training run.
        vocab_size: The size of the vocabulary.
    """
    # An upper bound only. It reserves the second set of gradients that accumulation needs.
    bound = config.training.forward_passes * MAX_PADDED_TOKENS
    training = config.training.model_copy(update={"device_tokens": bound})
    accumulating = config.model_copy(update={"training": training})
    available = available_memory()
    peaks = list(_measure_peaks(accumulating, vocab_size, _measured_sizes(config)))
    try:
        fitting = _predict_fitting_tokens(accumulating, available, peaks)
    except UserError as error:
        return error
    tried = _concurrent_tokens(config, config.data.padded_tokens)
    # Whatever the prediction: this many tokens did not fit.
    below = tried // 2 // GRANULARITY * GRANULARITY
    padded_tokens = max(config.data.max_length, min(fitting, below))
    return UserError(_advice(config, padded_tokens, available))


def _advice(config: Config, padded_tokens: int, available: int) -> str:
    device_tokens = config.training.forward_passes * padded_tokens
    if config.training.device_tokens is not None:
        return (
            f"out of memory: parts of {config.training.device_tokens:,} padded tokens "
            f"(training.device_tokens) do not fit into {_gigabytes(available)}; resume with "
            f"smaller parts: training.device_tokens={device_tokens}"
        )
    return (
        f"out of memory: batches of {config.data.padded_tokens:,} padded tokens "
        f"(data.batch_tokens) do not fit into {_gigabytes(available)}; resume with "
        f"training.device_tokens={device_tokens}, which accumulates gradients (the same steps, "
        "except for rounding and dropout masks), or start another --run_dir with smaller batches: "
        f"data.batch_tokens={padded_tokens}"
    )


# --- Prediction -----------------------------------------------------------------------------------


def _measured_sizes(config: Config) -> tuple[int, ...]:
    """Return the sizes of the measured batches in padded tokens."""
    return tuple(rows * config.data.max_length for rows in MEASURED_ROWS)


def _predict_fitting_tokens(config: Config, available: int, peaks: list[int]) -> int:
    """Return the most padded tokens that fit into the safe share of the available memory.

    Memory grows linearly with the padded tokens. The line through the last two peaks predicts it.

    Args:
        config: The configuration of the training run.
        available: Bytes.
        peaks: Peak bytes of the measured sizes, without those that did not fit.

    Raises:
        UserError: Not even one pair of data.max_length fits.
    """
    concurrent = [_concurrent_tokens(config, size) for size in _measured_sizes(config)]
    points = list(zip([0, *concurrent], [0, *peaks], strict=False))
    if len(points) > 1:
        (few, less), (many, more) = list(pairwise(points))[-1]
        bytes_per_token = max(0.0, (more - less) / (many - few)) if many > few else 0.0
        left = SAFE_SHARE * available - more
        most = _concurrent_tokens(config, MAX_PADDED_TOKENS)
        if bytes_per_token:
            padded_tokens = int(min(most, many + left / bytes_per_token))
        else:
            padded_tokens = most * (left >= 0)
        if padded_tokens >= most:
            padded_tokens = MAX_PADDED_TOKENS
        if padded_tokens >= config.data.max_length:
            return max(config.data.max_length, padded_tokens // GRANULARITY * GRANULARITY)
    raise UserError(
        f"out of memory: not even one pair of {config.data.max_length:,} tokens per side "
        f"(data.max_length) fits into {_gigabytes(available)}; lower data.max_length or make the "
        "model smaller"
    )


def _concurrent_tokens(config: Config, padded_tokens: int) -> int:
    """Return the padded tokens of a batch that a device processes at once: at least one row."""
    limit, length = config.training.device_tokens, config.data.max_length
    if limit is None:
        return padded_tokens
    return min(padded_tokens, max(limit // config.training.forward_passes // length, 1) * length)


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB"


# --- Measurement ----------------------------------------------------------------------------------


def _measure_in_process(
    config: Config, vocab_size: int, sizes: tuple[int, ...]
) -> tuple[int, list[int]]:
    """Measure in a separate process, which may be killed when the memory runs out.

    Returns:
        The available memory, and the peaks of the sizes up to the first one that does not fit.
    """
    values, code = values_of_process(_measurements, config, vocab_size, sizes)
    if not values or code not in (0, *OUT_OF_MEMORY_CODES):
        raise RuntimeError(f"measuring memory ended with exit code {code}")
    return values[0], values[1:]


def _measurements(config: Config, vocab_size: int, sizes: tuple[int, ...]) -> Iterator[int]:
    """Yield the available memory, then the peaks. It runs in a separate process."""
    os.environ.pop("TF_CONFIG", None)  # no other host takes part
    limit_memory()
    yield available_memory()
    yield from _measure_peaks(config, vocab_size, sizes)


def _measure_peaks(config: Config, vocab_size: int, sizes: tuple[int, ...]) -> Iterator[int]:
    """Yield the peak bytes of two steps for each increasing size, until one does not fit."""
    import_tensorflow()
    import tensorflow as tf

    from tfnmt.training.trainer import make_trainer

    device = training_device()
    before = tf.config.experimental.get_memory_info(device)["current"]
    tf.config.experimental.reset_memory_stats(device)
    try:
        trainer = make_trainer(config, vocab_size, tf.distribute.get_strategy())
        # Whether parallel streams reach their peaks at the same moment is chance. One stream with
        # the whole batch needs as much as all of them together, except for their own gradients.
        streams, trainer.streams = trainer.streams, 1
        gradients = 4 * trainer.transformer.count_params() * (streams if streams > 1 else 0)
        trainer.make_train_function()
        for size in sizes:
            batches = unpadded_batches(size // config.data.max_length, config, vocab_size)
            trainer.train_function(batches)
            trainer.train_function(batches)
            peak = tf.config.experimental.get_memory_info(device)["peak"]
            yield peak - before + gradients
    except (tf.errors.ResourceExhaustedError, MemoryError):
        return


def unpadded_batches(rows: int, config: Config, vocab_size: int) -> Any:
    """Return an endless iterator of batches without padding, which need the most memory."""
    import tensorflow as tf

    shape = (max(1, rows), config.data.max_length)
    random = np.random.default_rng(config.training.seed)
    source, target_in, target_out = random.integers(EOS, vocab_size, (3, *shape), np.int32)
    target_in[:, 0] = BOS
    ids = tf.TensorSpec((None, None), tf.int32)  # one graph for all sizes
    return iter(
        tf.data.Dataset.from_generator(
            lambda: iter([((source, target_in), target_out)]), output_signature=((ids, ids), ids)
        ).repeat()
    )
