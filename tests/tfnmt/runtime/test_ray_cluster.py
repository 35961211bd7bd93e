"""The Ray executor on a cluster of two local nodes, one of which is killed."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray; install the extra `cluster`"),
]

ROOT = Path(__file__).parents[3]
SCRIPT = """
import sys
from importlib.util import find_spec
from pathlib import Path
from ray.cluster_utils import Cluster
from tests.tfnmt.runtime.toy_work import Uppercase, joined, make_shards, text
from tfnmt.runtime.ray_executor import RayExecutor

folder = Path(sys.argv[1])
content = text(*["sleep"] * 19, lines=400)
shards = make_shards(folder, content)
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
node = cluster.add_node(num_cpus=1)
cluster.wait_for_nodes()
hosts = {}
with RayExecutor(cluster.address, None, 0, stall_seconds=60) as executor:
    assert executor.workers == 2
    for _, process in executor.run(Uppercase(folder), shards, lambda units: None):
        hosts[process] = hosts.get(process, 0) + 1
        if len(hosts) == 2 and node is not None:
            cluster.remove_node(node, allow_graceful=False)
            node = None
assert node is None, hosts
assert joined(folder, shards) == content.upper()
print("complete", sorted(hosts.values()), sum(hosts.values()))
cluster.shutdown()
"""


def test_output_is_complete_if_a_node_is_killed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith(" 25")
    assert "attempt 1 failed" in done.stderr
