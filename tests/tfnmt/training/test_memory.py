"""What fits into memory is foretold, and what does not ends in a line."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tfnmt.config import Config, build_config
from tfnmt.errors import UserError
from tfnmt.training import memory
from tfnmt.training.memory import _cgroup_left, _fitting

VOCAB = 500
MEGA = 10**6


def config(batch_tokens: int = 4096, device_tokens: int | None = None) -> Config:
    return build_config(
        {
            "data": {"max_length": 32, "batch_tokens": batch_tokens},
            "model": {
                "num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 64, "num_heads": 2,
                "d_ff": 128,
            },
            "training": {"device_tokens": device_tokens},
        }
    )  # fmt: skip


def slots_of(room: int, **changes: Any) -> int:
    """The budget where 10 MB are fixed and a slot takes 1 kB."""
    made = config(**changes)
    at_once = [memory._at_once(made, size) for size in memory._sizes(made)]
    return _fitting(made, room, [10 * MEGA + 1000 * slots for slots in at_once])


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
    assert _fitting(config(), 15 * MEGA, [10 * MEGA]) < memory._sizes(config())[1]


def test_parts_that_fit_let_any_batch_fit() -> None:
    room = 18 * MEGA  # for 4,400 slots at once
    assert slots_of(room) == 4352
    assert slots_of(room, device_tokens=2048) == slots_of(10**12)
    assert slots_of(room, device_tokens=32) == slots_of(10**12)  # all sizes take the same
    assert slots_of(room, device_tokens=9000) == 4352


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
    monkeypatch.delenv(memory.POOL_SIZE, raising=False)
    memory.limit_memory()
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE")
    assert memory.SMALLEST_POOL <= int(os.environ[memory.POOL_SIZE]) < total
    monkeypatch.setenv(memory.POOL_SIZE, "123")
    memory.limit_memory()
    assert os.environ[memory.POOL_SIZE] == "123"


def test_four_times_the_slots_take_what_the_line_foretells() -> None:
    sizes = [1024, 2048, 8192]
    _, (few, some, many) = memory._measure_apart(config(), VOCAB, tuple(sizes))
    assert many == pytest.approx(some + (some - few) / 1024 * (8192 - 2048), rel=0.25)
    assert few < some < many


OUT_OF_MEMORY = """
import sys
sys.path.insert(0, {folder!r})
import test_memory
from tfnmt.quiet import import_tensorflow
import_tensorflow()
import tensorflow as tf
from tfnmt.training import memory
from tfnmt.training.training import make_trainer
config = test_memory.config(batch_tokens=200_000)
trainer = make_trainer(config, test_memory.VOCAB, tf.distribute.get_strategy())
trainer.make_train_function()
try:
    trainer.train_function(memory._worst_batches(6250, config, test_memory.VOCAB))
except tf.errors.ResourceExhaustedError:
    print(memory.out_of_memory(config, test_memory.VOCAB))
"""


@pytest.mark.slow
def test_a_batch_beyond_the_limit_is_an_error_and_what_it_advises_fits() -> None:
    done = subprocess.run(
        [sys.executable, "-c", OUT_OF_MEMORY.format(folder=str(Path(__file__).parent))],
        env={**os.environ, memory.POOL_SIZE: str(300 * MEGA)},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    line = done.stdout.strip()
    assert line.startswith("out of memory: batches of 200,000 slots (data.batch_tokens) "), done
    assert "do not fit into 0.3 GB; training.device_tokens=" in line
    advised = int(line.rsplit("data.batch_tokens=", 1)[1].split()[0])
    assert 2048 < advised < 100_000
    assert memory.measure(config(), VOCAB, advised) < 300 * MEGA
    in_parts = config(200_000, device_tokens=advised)
    assert memory.measure(in_parts, VOCAB, 4 * advised) < 300 * MEGA
