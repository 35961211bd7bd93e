"""A Slurm cluster of two nodes on this machine, in namespaces of its own."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

NODE = Path(__file__).with_name("node.sh")

PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "ip", "unshare", "nsenter", "setpriv")

PACKAGES = "slurmctld slurmd slurm-client munge iproute2"

NAMESPACES = (
    *("unshare", "--net", "--uts", "--mount", "--pid"),
    *("--fork", "--kill-child", "--mount-proc"),
)
"""A command that gives a node its own network, host name, mounts and processes."""

NODES = ("d9", "d10")

HOSTS = "127.0.0.1 localhost\n10.77.0.9 d9\n10.77.0.10 d10\n"

CONFIGURATION = """
ClusterName=tfnmt
SlurmctldHost=d9
AuthType=auth/munge
AuthInfo=socket={folder}/munge,cred_expire=5
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=2,bf_interval=2
GresTypes=gpu
NodeName=d[9-10] CPUs=32 Gres=gpu:4
PartitionName=all Nodes=ALL Default=YES State=UP
"""
"""Nodes claim CPUs and GPUs that this machine does not have, so that scripts run unchanged."""

GPUS = "Name=gpu File=/dev/tty[0-3]\n"


def why_not() -> str | None:
    """Return why no cluster can run here, if it cannot."""
    if missing := [name for name in PROGRAMS if shutil.which(name, path=_path()) is None]:
        return f"{', '.join(missing)} not found; apt-get install {PACKAGES}"
    if subprocess.run([*NAMESPACES, "true"], check=False, capture_output=True).returncode:
        return "unshare is not permitted; run as root"
    return None


def _path() -> str:
    return f"{os.environ['PATH']}:/usr/sbin:/sbin"


class Cluster:
    """A running cluster. Its commands run on the first node."""

    def __init__(self, folder: Path, node: int) -> None:
        self.folder = folder
        self._enter = ["nsenter", f"--target={node}", "--net", "--uts", "--mount", "--pid"]
        self._environment = os.environ | {
            "PATH": _path(),
            "SLURM_CONF": str(folder / "slurm.conf"),
        }

    def idle_nodes(self) -> int:
        """Return the number of nodes that are ready and have no job."""
        return (
            self._call("sinfo", "--noheader", "--Node", "--format=%t").stdout.split().count("idle")
        )

    def run(self, *command: str, **variables: str) -> str:
        """Run a command and return its output."""
        found = self._call(*command, **variables)
        assert found.returncode == 0, f"{command}: {found.stderr}\n{self.logs()}"
        return found.stdout.strip()

    def _call(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self._enter, *command],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env=self._environment | variables,
        )

    def wait_for(self, condition: Callable[[], object], seconds: float = 600) -> None:
        """Wait until a condition is true."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"timeout\n{self.logs()}"
            time.sleep(0.2)

    def submit(self, *command: str, **variables: str) -> "Job":
        """Submit a batch job; `command` starts with flags of sbatch."""
        output = f"--output={self.folder}/job-%j.out"
        number = self.run("sbatch", "--parsable", output, *command, **variables)
        return Job(self, number, self.folder / f"job-{number}.out")

    def logs(self) -> str:
        """Return the logs of the daemons and the outputs of the jobs."""
        paths = [path for name in ("*.log", "*.out") for path in sorted(self.folder.glob(name))]
        return "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')}" for path in paths)


class Job:
    """A batch job."""

    def __init__(self, cluster: Cluster, number: str, output: Path) -> None:
        self.cluster = cluster
        self.number = number
        self.output = output

    def field(self, name: str) -> str:
        """Return a field of `scontrol show job`, such as JobState."""
        text = self.cluster.run("scontrol", "show", "job", self.number)
        return next(word for word in text.split() if word.startswith(f"{name}=")).partition("=")[2]

    def text(self) -> str:
        """Return the output so far, whose last character may be incomplete."""
        return self.output.read_text(errors="replace") if self.output.is_file() else ""

    def process(self, task: int) -> int:
        """Return the process id of a task of the running step.

        Other clusters of this machine may have a job of this number.
        """
        variables = {
            f"SLURM_CONF={self.cluster.folder / 'slurm.conf'}",
            f"SLURM_JOB_ID={self.number}",
            f"SLURM_PROCID={task}",
        }
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                found = variables <= set(path.read_text(errors="replace").split("\0"))
            except OSError:  # it has ended
                continue
            if found:
                return int(path.parent.name)
        raise AssertionError(f"job {self.number}: no task {task}\n{self.text()}")


@contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    """Run a cluster with its state in a folder. At the end, all of its processes are killed."""
    (folder / "state").mkdir()
    (folder / "hosts").write_text(HOSTS)
    (folder / "slurm.conf").write_text(CONFIGURATION.format(folder=folder))
    (folder / "gres.conf").write_text(GPUS)
    (folder / "key").write_bytes(os.urandom(128))
    (folder / "key").chmod(0o400)
    with ExitStack() as stack:
        nodes = [stack.enter_context(_running_node(name, folder)) for name in NODES]
        cluster = Cluster(folder, nodes[0])
        cable = ["ip", "link", "add", "eth0", "type", "veth", "peer", "eth0"]
        command = ["nsenter", f"--target={nodes[0]}", "--net", *cable, "netns", str(nodes[1])]
        subprocess.run(command, check=True)
        cluster.wait_for(lambda: cluster.idle_nodes() == 2)
        yield cluster


@contextmanager
def _running_node(name: str, folder: Path) -> Iterator[int]:
    """Run a node, and yield its process id."""
    # setpriv kills the node even if this process is killed.
    command = ["setpriv", "--pdeathsig=KILL", *NAMESPACES, str(NODE), name, str(folder)]
    with subprocess.Popen(command, env=os.environ | {"PATH": _path()}) as process:
        try:
            yield _first_child(process)
        finally:
            process.kill()


def _first_child(process: subprocess.Popen[bytes]) -> int:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while not (found := children.read_text().split()):
        assert process.poll() is None, f"{process.args}: exit status {process.returncode}"
        time.sleep(0.05)
    return int(found[0])
