"""File operations of a process, and the files that remain if it is killed, or the power is cut."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import tfnmt
from tfnmt.runtime.files import TEMPORARY

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(tfnmt.__file__).resolve().parent.parent)}

# --- Killed processes -----------------------------------------------------------------------------

KILLED = """
import os, shutil, sys
from pathlib import Path

initial, states = map(Path, sys.argv[1:])
CHANGING = os.O_WRONLY | os.O_RDWR | os.O_CREAT

def changes(event, arguments):
    if event == "open":
        return isinstance(arguments[0], str) and arguments[2] & CHANGING
    return event in ("os.mkdir", "os.rename", "os.remove", "os.rmdir")

def kill_before(operation):
    def hook(event, arguments):
        nonlocal operation
        if changes(event, arguments):
            if operation == 0:
                os._exit(1)  # without cleaning up
            operation -= 1
    sys.addaudithook(hook)

{definition}

for operation in range(1000):
    folder = states / f"{operation:03}"
    shutil.copytree(initial, folder)
    child = os.fork()
    if child == 0:
        kill_before(operation)
        action(folder)
        os._exit(0)
    if os.waitpid(child, 0)[1] == 0:
        break
"""


def killed_states(definition: str, initial: Path, states: Path) -> list[Path]:
    """Kill an action before each of its file operations; return the folder that each leaves.

    Args:
        definition: Python code that defines `action(folder)`.
        initial: The folder before the action.
        states: A new folder for the results. The last one is that of the complete action.
    """
    script = KILLED.replace("{definition}", definition)
    subprocess.run([sys.executable, "-c", script, initial, states], check=True, env=ENVIRONMENT)
    return sorted(states.iterdir())


# --- System calls ---------------------------------------------------------------------------------

CALLS = (
    "openat,write,pwrite64,writev,ftruncate,fsync,fdatasync,rename,renameat,renameat2,mkdir,"
    "mkdirat,unlink,unlinkat,rmdir"
)
_LINE = re.compile(r"(\d+) +(?:<\.\.\. \w+ resumed>(.*)|(.*?)( <unfinished \.\.\.>)?)$")
_CALL = re.compile(r"(\w+)\((.*)\) += [0-9]+(?:<(.*)>)?")
_PATH = re.compile(r'"([^"]*)"|^\d+<([^>]*)>')


@dataclass(frozen=True)
class Call:
    """A successful system call that changes a file or a folder."""

    name: str
    paths: tuple[str, ...]


def record(command: Sequence[str | Path], folder: Path) -> list[Call]:
    """Run a command, and return its calls with absolute paths in a folder, in order.

    Skips the test where strace is missing or not permitted.
    """
    log = folder / "strace.log"
    strace = ["strace", "-f", "--seccomp-bpf", "-y", "-s", "4096", "-e", f"trace={CALLS}"]
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    if subprocess.run([*strace, "-o", log, "true"], capture_output=True, check=False).returncode:
        pytest.skip("strace is not permitted")
    subprocess.run([*strace, "-o", log, *command], check=True, env=ENVIRONMENT)
    return [call for call in _parse(log.read_text()) if str(folder) in call.paths[0]]


def _parse(log: str) -> Iterator[Call]:
    started: dict[str, str] = {}  # calls that another thread interrupted in the log
    for line in log.splitlines():
        process, end, text, unfinished = _LINE.fullmatch(line).groups()
        if unfinished:
            started[process] = text
            continue
        found = _CALL.match(started.pop(process) + end if end is not None else text)
        if found is None:
            continue
        name, arguments, opened = found.groups()
        paths = tuple(one or other for one, other in _PATH.findall(arguments))
        if name == "openat" and "O_CREAT" in arguments:
            yield Call("create", (opened,))
        elif name == "renameat2" and "RENAME_EXCHANGE" in arguments:
            yield Call("exchange", paths)
        elif name.startswith("rename"):
            yield Call("rename", paths)
        elif name.startswith("mkdir"):
            yield Call("mkdir", paths)
        elif name in ("unlink", "unlinkat", "rmdir"):
            yield Call("remove", paths)
        elif name in ("fsync", "fdatasync"):
            yield Call("sync", paths)
        elif name != "openat" and paths:
            yield Call("write", paths)


@dataclass(eq=False)
class Node:
    """A file or a folder."""

    is_folder: bool
    content: bytes | None = None  # of a file, if it is known
    synced: bool = False  # whether its content, or its names, have been written to the disk


@dataclass
class Disk:
    """The files and folders that calls have touched, in memory and on the disk."""

    nodes: dict[str, Node] = field(default_factory=dict)

    def apply(self, call: Call) -> None:
        """Apply a call. Raises an AssertionError if it publishes a file that is not synced."""
        path = call.paths[0]
        if call.name in ("create", "mkdir"):
            self.nodes.setdefault(path, Node(call.name == "mkdir"))
            self._change_names(path)
        if call.name in ("create", "write") and path in self.nodes:
            self.nodes[path].synced = False
        if call.name == "sync":
            self.nodes.setdefault(path, Node(True)).synced = True
        if call.name == "remove":
            self.nodes.pop(path, None)
            self._change_names(path)
        if call.name in ("rename", "exchange"):
            self._rename(*call.paths, exchange=call.name == "exchange")

    def unsynced(self, path: str = "") -> list[str]:
        """Return the paths below a path whose content a power cut would lose."""
        return [name for name, node in self.nodes.items() if _below(name, path) and not node.synced]

    def _rename(self, old: str, new: str, exchange: bool) -> None:
        moved = {name: node for name, node in self.nodes.items() if _below(name, old)}
        replaced = {name: node for name, node in self.nodes.items() if _below(name, new)}
        if not any(Path(part).match(TEMPORARY) for part in Path(new).parts):
            assert not self.unsynced(old), f"{new} appears with content that is not synced"
        for name in (*moved, *replaced):
            del self.nodes[name]
        self.nodes |= {new + name.removeprefix(old): node for name, node in moved.items()}
        if exchange:
            self.nodes |= {old + name.removeprefix(new): node for name, node in replaced.items()}
        self._change_names(old)
        self._change_names(new)

    def _change_names(self, path: str) -> None:
        self.nodes.setdefault(str(Path(path).parent), Node(True)).synced = False


def power_cuts(calls: list[Call], before: Path, after: Path) -> Iterator[dict[str, bytes]]:
    """Yield the files, by relative path, that remain if the power is cut after each call.

    The content of files that are not synced is lost.

    Args:
        calls: The calls in the folder `after`.
        before: A copy of the folder before the calls.
        after: The folder after the calls.
    """
    complete, created = _replay(calls, before, after, {})
    for name, node in complete.nodes.items():
        if node in created and Path(name).is_file():
            node.content = Path(name).read_bytes()
    contents = {number: node.content for number, node in enumerate(created)}
    for count in range(len(calls) + 1):
        disk, _ = _replay(calls[:count], before, after, contents)
        yield {
            name.removeprefix(f"{after}/"): (node.content or b"") if node.synced else b""
            for name, node in disk.nodes.items()
            if not node.is_folder and _below(name, str(after))
        }


def _replay(
    calls: list[Call], before: Path, after: Path, contents: dict[int, bytes | None]
) -> tuple[Disk, list[Node]]:
    """Return the disk after some calls, and the files that they created, in order."""
    disk, created = Disk(), []
    for path in before.rglob("*"):
        content = None if path.is_dir() else path.read_bytes()
        name = str(after / path.relative_to(before))
        disk.nodes[name] = Node(path.is_dir(), content, synced=True)
    for call in calls:
        known = call.paths[0] in disk.nodes
        disk.apply(call)
        if call.name == "create" and not known:
            created.append(disk.nodes[call.paths[0]])
            created[-1].content = contents.get(len(created) - 1)
    return disk, created


def _below(name: str, path: str) -> bool:
    return not path or name == path or name.startswith(f"{path}/")
