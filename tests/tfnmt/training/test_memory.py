"""What memory there is, by the machine, its control groups or the user."""

import os
from pathlib import Path

import pytest

from tfnmt.training import memory
from tfnmt.training.memory import _cgroup_left

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
