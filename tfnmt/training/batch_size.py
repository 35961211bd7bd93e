"""The budget of slots of a batch: measured on small ones, never found out by trying large ones.

Nothing here imports TensorFlow before it computes, so that a GPU is not held by this process while
another one measures for it.
"""

import os
from collections.abc import Iterator
from itertools import pairwise
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from tfnmt.config import Config
from tfnmt.data.preparation.tokenizer import BOS, EOS
from tfnmt.errors import UserError
from tfnmt.runtime.startup import import_tensorflow

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


SAFE_SHARE = 0.8
"""Of the memory, for a batch: the pool has gaps, and evaluation takes some, too."""

GRAIN = 256
"""Budgets are multiples of so many slots."""

MOST_SLOTS = 25_000
"""The paper's batch (section 5.1): more slots make fewer updates, hardly better ones."""

ROWS = (1, 16, 64)
"""Rows of the batches that are measured."""

KILLED = (-6, -9, -11)
"""Exit codes of a process without memory: by TensorFlow's abort, the kernel, a null pointer."""


def fitting_slots(config: Config, vocab_size: int) -> int:
    """The most slots that a batch can have, MOST_SLOTS at most.

    Raises UserError where not even one pair of data.max_length fits.
    """
    return _fitting(config, *_measure_apart(config, vocab_size, _sizes(config)))


def out_of_memory(config: Config, vocab_size: int) -> UserError:
    """What to tell about a training that ran out of memory: the budget that would fit.

    It is measured in this process, since that holds the memory: another one would not get any.
    """
    # A bound alone: it reserves the second set of gradients that working in parts takes.
    bound = config.training.readings * MOST_SLOTS
    parts = config.training.model_copy(update={"device_tokens": bound})
    config_in_parts = config.model_copy(update={"training": parts})
    room = available_memory()
    try:
        fitting = _fitting(
            config_in_parts, room, list(_peaks(config_in_parts, vocab_size, _sizes(config)))
        )
    except UserError as error:
        return error
    at_once = _at_once(config, config.data.slots)
    # Whatever was predicted, that many did not fit.
    slots = max(config.data.max_length, min(fitting, at_once // 2 // GRAIN * GRAIN))
    return UserError(_advice(config, slots, room))


def _advice(config: Config, slots: int, room: int) -> str:
    parts = config.training.readings * slots
    if config.training.device_tokens is not None:
        return (
            f"out of memory: parts of {config.training.device_tokens:,} slots "
            f"(training.device_tokens) do not fit into {_gigabytes(room)}; the same command goes "
            f"on with training.device_tokens={parts}, which makes them smaller"
        )
    return (
        f"out of memory: batches of {config.data.slots:,} slots (data.batch_tokens) do not "
        f"fit into {_gigabytes(room)}; the same command goes on with "
        f"training.device_tokens={parts}, which works on them in parts, each update the same to "
        f"rounding but for what dropout draws; in another --run_dir data.batch_tokens={slots} "
        "makes them smaller"
    )


# --- The prediction -------------------------------------------------------------------------------


def _sizes(config: Config) -> tuple[int, ...]:
    return tuple(rows * config.data.max_length for rows in ROWS)


def _fitting(config: Config, room: int, peaks: list[int]) -> int:
    """The most slots within the safe share of the room, by the peaks of the sizes that ran.

    Memory is a line, so much and so much more a slot: the one through the last two peaks.
    """
    at_once = [_at_once(config, slots) for slots in _sizes(config)]
    points = list(zip([0, *at_once], [0, *peaks], strict=False))
    if len(points) > 1:
        (few, less), (many, more) = list(pairwise(points))[-1]
        per_slot = max(0.0, (more - less) / (many - few)) if many > few else 0.0
        left = SAFE_SHARE * room - more
        most = _at_once(config, MOST_SLOTS)
        slots = int(min(most, many + left / per_slot)) if per_slot else most * (left >= 0)
        if slots >= most:
            slots = MOST_SLOTS
        if slots >= config.data.max_length:
            return max(config.data.max_length, slots // GRAIN * GRAIN)
    raise UserError(
        f"out of memory: not even one pair of {config.data.max_length:,} pieces a side "
        f"(data.max_length) fits into {_gigabytes(room)}; lower data.max_length or make the model "
        "smaller"
    )


def _at_once(config: Config, slots: int) -> int:
    """Slots of a batch that a device works on at once: whole rows, one at least."""
    limit, length = config.training.device_tokens, config.data.max_length
    if limit is None:
        return slots
    return min(slots, max(limit // config.training.readings // length, 1) * length)


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB"


# --- Measuring ------------------------------------------------------------------------------------


def _measure_apart(
    config: Config, vocab_size: int, sizes: tuple[int, ...]
) -> tuple[int, list[int]]:
    """Available memory, and the peaks of the sizes up to one that does not fit.

    All in a process of its own, which may die of it.
    """
    context = get_context("spawn")  # not forked: the caller may have threads, TensorFlow's
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_tell, args=(sender, config, vocab_size, sizes), daemon=True)
    process.start()
    sender.close()
    told = list(_received(receiver))
    process.join()
    if not told or process.exitcode not in (0, *KILLED):
        raise RuntimeError(f"measuring memory ended with exit code {process.exitcode}")
    return told[0], told[1:]


def _received(receiver: Connection) -> Iterator[int]:
    with receiver:
        try:
            while True:
                yield receiver.recv()
        except EOFError:
            return


def _tell(sender: Connection, config: Config, vocab_size: int, sizes: tuple[int, ...]) -> None:
    """What the process of its own does."""
    os.environ.pop("TF_CONFIG", None)  # no other host takes part
    limit_memory()
    sender.send(available_memory())
    for peak in _peaks(config, vocab_size, sizes):
        sender.send(peak)


def _peaks(config: Config, vocab_size: int, sizes: tuple[int, ...]) -> Iterator[int]:
    """Peak bytes of two updates on batches of each size, growing, up to one that does not fit."""
    import_tensorflow()
    import tensorflow as tf

    from tfnmt.training.trainer import make_trainer

    device = counted_device()
    held = tf.config.experimental.get_memory_info(device)["current"]
    tf.config.experimental.reset_memory_stats(device)
    try:
        trainer = make_trainer(config, vocab_size, tf.distribute.get_strategy())
        # Whether lanes need their most at the same moment is chance. A batch at once needs what all
        # of them may, but for gradients of their own.
        lanes, trainer.lanes = trainer.lanes, 1
        gradients = 4 * trainer.transformer.count_params() * (lanes if lanes > 1 else 0)
        trainer.make_train_function()
        for slots in sizes:
            batches = _worst_batches(slots // config.data.max_length, config, vocab_size)
            trainer.train_function(batches)
            trainer.train_function(batches)
            peak = tf.config.experimental.get_memory_info(device)["peak"]
            yield peak - held + gradients
    except (tf.errors.ResourceExhaustedError, MemoryError):
        return


def _worst_batches(rows: int, config: Config, vocab_size: int) -> Any:
    """Endless batches of so many rows with no padding, as training reads them."""
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
