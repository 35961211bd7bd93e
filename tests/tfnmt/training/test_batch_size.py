"""What fits into memory is foretold, and what does not ends in a line."""

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
from tfnmt.training.batch_size import POOL_SIZE, _cgroup_left, _fitting

VOCAB = 500
MEGA = 10**6


def config(
    batch_tokens: int = 4096, device_tokens: int | None = None, r_drop: float | None = None
) -> Config:
    return build_config(
        {
            "data": {"max_length": 32, "batch_tokens": batch_tokens},
            "model": {
                "num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 64, "num_heads": 2,
                "d_ff": 128,
            },
            "training": {"device_tokens": device_tokens, "r_drop": r_drop},
        }
    )  # fmt: skip


def slots_of(room: int, **changes: Any) -> int:
    """The budget where 10 MB are fixed and a slot takes 1 kB."""
    made = config(**changes)
    at_once = [batch_size._at_once(made, size) for size in batch_size._sizes(made)]
    return _fitting(made, room, [10 * MEGA + 1000 * slots for slots in at_once])


def taken_by(made: Config, slots: int) -> int:
    """Peak bytes of a training on batches of so many slots."""
    _, (peak,) = batch_size._measure_apart(made, VOCAB, (slots,))
    return peak


def test_the_budget_is_what_the_line_says_within_the_safe_share() -> None:
    assert slots_of(room=25 * MEGA) == 10_000 // 256 * 256
    assert slots_of(room=10**12) == 25_000 // 256 * 256


def test_it_is_one_pair_at_least_or_an_error_that_says_what_to_do() -> None:
    assert slots_of(room=round((10 * MEGA + 50_000) / 0.8)) == 32
    with pytest.raises(UserError, match=r"one pair of 32 pieces.* fits into 0\.0 GB; lower data"):
        slots_of(room=10 * MEGA)
    with pytest.raises(UserError, match=r"data\.max_length"):
        _fitting(config(), 10**12, [])  # not even the smallest size ran


def test_where_only_the_smallest_size_ran_the_budget_stays_below_the_others() -> None:
    assert _fitting(config(), 15 * MEGA, [10 * MEGA]) < batch_size._sizes(config())[1]


def test_parts_that_fit_let_any_batch_fit() -> None:
    room = 18 * MEGA  # for 4,400 slots at once
    assert slots_of(room) == 4352
    assert slots_of(room, device_tokens=2048) == slots_of(10**12)
    assert slots_of(room, device_tokens=32) == slots_of(10**12)  # all sizes take the same
    assert slots_of(room, device_tokens=9000) == 4352
    assert slots_of(room, device_tokens=8192) == 4352
    assert slots_of(room, device_tokens=8192, r_drop=1.0) == slots_of(10**12)  # 4,096 at once


def test_a_budget_four_times_what_was_measured_fits_and_leaves_less_than_half_unused() -> None:
    made = config()
    large = 4 * batch_size._sizes(made)[-1]
    # Peaks differ by a tenth from run to run, for what runs at the same moment is chance.
    _, peaks = batch_size._measure_apart(made, VOCAB, (*batch_size._sizes(made), large))
    assert sorted(set(peaks)) == peaks
    *measured, room = peaks
    assert large / 2 < _fitting(made, room, measured) <= large


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
trainer = make_trainer(config, test_batch_size.VOCAB, tf.distribute.get_strategy())
trainer.make_train_function()
try:
    trainer.train_function(batch_size._worst_batches(6250, config, test_batch_size.VOCAB))
except tf.errors.ResourceExhaustedError:
    print(batch_size.out_of_memory(config, test_batch_size.VOCAB))
"""


@pytest.mark.slow
@pytest.mark.parametrize("r_drop", [None, 1.0])
def test_a_batch_beyond_the_limit_is_an_error_and_what_it_advises_fits(
    r_drop: float | None,
) -> None:
    code = OUT_OF_MEMORY.format(folder=str(Path(__file__).parent), r_drop=r_drop)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, POOL_SIZE: str(300 * MEGA)},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    line = done.stdout.strip()
    assert line.startswith("out of memory: batches of 200,000 slots (data.batch_tokens) "), done
    assert "do not fit into 0.3 GB; the same command goes on with training.device_tokens=" in line
    parts, advised = map(int, re.findall(r"_tokens=(\d+)", line))
    assert 1024 < advised < 100_000
    assert taken_by(config(r_drop=r_drop), advised) < 300 * MEGA
    in_parts = config(200_000, parts, r_drop)
    assert taken_by(in_parts, 4 * advised) < 300 * MEGA


CGROUP_2 = {
    "a/memory.max": "max",
    "a/b/memory.max": "1000", "a/b/memory.current": "700",
    "a/b/memory.stat": "anon 500\ninactive_file 200\nactive_file 0",
}  # fmt: skip
CGROUP_1 = {
    "memory/memory.limit_in_bytes": "9000", "memory/memory.usage_in_bytes": "4000",
    "memory/memory.stat": "inactive_file 1\ntotal_inactive_file 1000",
    "memory/a/memory.limit_in_bytes": "800", "memory/a/memory.usage_in_bytes": "300",
    "memory/a/memory.stat": "inactive_file 1\ntotal_inactive_file 0",
}  # fmt: skip


@pytest.mark.parametrize(
    ("files", "membership", "left"),
    [
        (CGROUP_2, "0::/a/b/c", [500]),
        (CGROUP_2, "0::/", []),
        (CGROUP_1, "4:memory:/a\n3:cpu,cpuacct:/a\n0::/", [500, 6000]),
        # In a container the path is the host's: only the root is there.
        (CGROUP_1, "4:memory:/docker/77", [6000]),
    ],
)
def test_every_control_group_above_counts_without_its_file_cache(
    files: dict[str, str], membership: str, left: list[int], tmp_path: Path
) -> None:
    for name, text in files.items():
        path = tmp_path / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    (tmp_path / "membership").write_text(membership + "\n")
    assert _cgroup_left(tmp_path / "membership", tmp_path / "cgroup") == left


def test_a_limit_of_the_users_own_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(batch_size.POOL_SIZE, raising=False)
    batch_size.limit_memory()
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE")
    assert batch_size.SMALLEST_POOL <= int(os.environ[batch_size.POOL_SIZE]) < total
    monkeypatch.setenv(batch_size.POOL_SIZE, "123")
    batch_size.limit_memory()
    assert os.environ[batch_size.POOL_SIZE] == "123"
