"""The batch size that fits into memory is predicted; running out of memory is a one-line error."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tfnmt.config import Config, build_config
from tfnmt.errors import UserError
from tfnmt.training import batch_size
from tfnmt.training.batch_size import POOL_SIZE, _cgroup_free, _predict_fitting_tokens

VOCAB_SIZE = 500
MEGA = 10**6


def config(
    batch_tokens: int = 4096, device_tokens: int | None = None, r_drop: float | None = None
) -> Config:
    return build_config(
        {
            "data": {"max_length": 32, "batch_tokens": batch_tokens},
            "model": {
                "num_encoder_layers": 1,
                "num_decoder_layers": 1,
                "d_model": 64,
                "num_heads": 2,
                "d_ff": 128,
            },
            "training": {"device_tokens": device_tokens, "r_drop": r_drop},
        }
    )


def predicted(available: int, **changes: Any) -> int:
    """Predict the batch size if 10 MB are fixed and a padded token takes 1 kB."""
    changed = config(**changes)
    sizes = batch_size._measured_sizes(changed)
    concurrent = [batch_size._concurrent_tokens(changed, size) for size in sizes]
    peaks = [10 * MEGA + 1000 * padded_tokens for padded_tokens in concurrent]
    return _predict_fitting_tokens(changed, available, peaks)


def measured_peak(config: Config, padded_tokens: int) -> int:
    """Return the peak bytes of training with batches of this size."""
    _, (peak,) = batch_size._measure_in_process(config, VOCAB_SIZE, (padded_tokens,))
    return peak


# --- Prediction -----------------------------------------------------------------------------------


def test_prediction_uses_the_safe_share_of_the_memory() -> None:
    assert predicted(available=25 * MEGA) == 10_000 // 256 * 256
    assert predicted(available=10**12) == 25_000 // 256 * 256


def test_prediction_is_at_least_one_pair_or_an_error() -> None:
    assert predicted(available=round((10 * MEGA + 50_000) / 0.8)) == 32
    with pytest.raises(UserError, match=r" 32 tokens.*data\.max_length.* 0\.0 GB; "):
        predicted(available=10 * MEGA)
    with pytest.raises(UserError, match=r"data\.max_length"):
        _predict_fitting_tokens(config(), 10**12, [])  # not even the smallest size fits


def test_prediction_stays_below_a_size_that_did_not_fit() -> None:
    found = _predict_fitting_tokens(config(), 15 * MEGA, [10 * MEGA])
    assert found < batch_size._measured_sizes(config())[1]


def test_prediction_has_no_limit_if_accumulated_parts_fit() -> None:
    available = 18 * MEGA  # for 4,400 padded tokens at once
    unlimited = predicted(10**12)
    assert predicted(available) == 4352
    assert predicted(available, device_tokens=2048) == unlimited
    assert predicted(available, device_tokens=32) == unlimited  # all sizes need the same
    assert predicted(available, device_tokens=9000) == 4352
    assert predicted(available, device_tokens=8192) == 4352
    assert predicted(available, device_tokens=8192, r_drop=1.0) == unlimited  # 4,096 at once


def test_prediction_for_a_batch_four_times_the_measured_ones_uses_over_half_the_memory() -> None:
    made = config()
    large = 4 * batch_size._measured_sizes(made)[-1]
    # Peaks differ by a tenth from run to run, because concurrent operations differ.
    sizes = (*batch_size._measured_sizes(made), large)
    _, peaks = batch_size._measure_in_process(made, VOCAB_SIZE, sizes)
    assert sorted(set(peaks)) == peaks
    *measured, available = peaks
    assert large / 2 < _predict_fitting_tokens(made, available, measured) <= large


# --- Out of memory --------------------------------------------------------------------------------

OUT_OF_MEMORY = """
import sys
sys.path.insert(0, {folder!r})
import test_batch_size
from tfnmt.runtime.startup import import_tensorflow
import_tensorflow()
import tensorflow as tf
from tfnmt.training import batch_size
from tfnmt.training.trainer import make_trainer
config = test_batch_size.config(batch_tokens=200_000, r_drop={r_drop})
trainer = make_trainer(config, test_batch_size.VOCAB_SIZE, tf.distribute.get_strategy())
trainer.make_train_function()
batches = batch_size.unpadded_batches(6250, config, test_batch_size.VOCAB_SIZE)
try:
    trainer.train_function(batches)
except tf.errors.ResourceExhaustedError:
    print(batch_size.out_of_memory(config, test_batch_size.VOCAB_SIZE))
"""


@pytest.mark.slow
def test_out_of_memory_error_recommends_sizes_that_fit() -> None:
    r_drop = 1.0  # it needs twice the memory
    code = OUT_OF_MEMORY.format(folder=str(Path(__file__).parent), r_drop=r_drop)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, POOL_SIZE: str(300 * MEGA)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    line = done.stdout.strip()
    assert line.startswith("out of memory: batches of 200,000 padded tokens"), done
    assert "(data.batch_tokens) do not fit into 0.3 GB; " in line
    assert "training.device_tokens=" in line
    assert "data.batch_tokens=" in line
    device_tokens, batch_tokens = map(int, re.findall(r"_tokens=(\d+)", line))
    assert 1024 < batch_tokens < 100_000
    assert measured_peak(config(r_drop=r_drop), batch_tokens) < 300 * MEGA
    accumulating = config(200_000, device_tokens, r_drop)
    assert measured_peak(accumulating, 4 * batch_tokens) < 300 * MEGA


# --- Available memory -----------------------------------------------------------------------------


def test_memory_limits_are_those_of_the_devices_of_a_kind() -> None:
    (limit,) = batch_size._memory_limits("CPU")
    assert limit > 0
    assert batch_size._memory_limits("TPU") == []


CGROUP_2 = {
    "a/memory.max": "max",
    "a/b/memory.max": "1000",
    "a/b/memory.current": "700",
    "a/b/memory.stat": "anon 500\ninactive_file 200\nactive_file 0",
}
CGROUP_1 = {
    "memory/memory.limit_in_bytes": "9000",
    "memory/memory.usage_in_bytes": "4000",
    "memory/memory.stat": "inactive_file 1\ntotal_inactive_file 1000",
    "memory/a/memory.limit_in_bytes": "800",
    "memory/a/memory.usage_in_bytes": "300",
    "memory/a/memory.stat": "inactive_file 1\ntotal_inactive_file 0",
}


@pytest.mark.parametrize(
    ("files", "membership", "free"),
    [
        (CGROUP_2, "0::/a/b/c", [500]),
        (CGROUP_2, "0::/", []),
        (CGROUP_1, "4:memory:/a\n3:cpu,cpuacct:/a\n0::/", [500, 6000]),
        # In a container the path is the host's, and only the root is mounted.
        (CGROUP_1, "4:memory:/docker/77", [6000]),
    ],
)
def test_free_memory_of_control_groups_includes_parents_and_file_cache(
    files: dict[str, str], membership: str, free: list[int], tmp_path: Path
) -> None:
    for name, text in files.items():
        path = tmp_path / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    (tmp_path / "membership").write_text(membership + "\n")
    assert _cgroup_free(tmp_path / "membership", tmp_path / "cgroup") == free


def test_limit_memory_keeps_a_limit_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(batch_size.POOL_SIZE, raising=False)
    batch_size.limit_memory()
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE")
    assert batch_size.SMALLEST_POOL <= int(os.environ[batch_size.POOL_SIZE]) < total
    monkeypatch.setenv(batch_size.POOL_SIZE, "123")
    batch_size.limit_memory()
    assert os.environ[batch_size.POOL_SIZE] == "123"
