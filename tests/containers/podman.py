"""Podman, set up for machines without systemd, and the images of the tests."""

import ast
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).parents[2]

TOOLS = ("podman", "runc", "debootstrap")

BASE = "localhost/tfnmt-test-base"
"""A base image that debootstrap makes once, because tests must not pull an image."""

DEBIAN = "trixie"
"""The Debian release of the base image. It has Python 3.13."""

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

CONFIGURATION = """\
[containers]
# Limits that runc need not raise. It may not raise them if podman itself runs in a container.
default_ulimits = ["nofile=1024:1024", "nproc=1000:1000"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
"""

TIMEOUT = 120


class Podman:
    """The podman command.

    Args:
        folder: A folder for its configuration.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        configuration = folder / "containers.conf"
        configuration.write_text(CONFIGURATION)
        # Health checks would need systemd's timers. The tests run them.
        self._environment = os.environ | {
            "CONTAINERS_CONF": str(configuration),
            "DISABLE_HC_SYSTEMD": "true",
        }

    def __call__(self, *arguments: object, **options: Any) -> str:
        """Run a subcommand and return its output."""
        return self.run("podman", *arguments, **options).stdout.strip()

    def run(self, *command: object, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command with the configuration. It must succeed."""
        done = self.attempt(*command, **options)
        assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
        return done

    def attempt(self, *command: object, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command with the configuration."""
        # A container without memory leaves a file `oom` in the working folder.
        defaults = {"cwd": self._folder, "env": self._environment, "text": True}
        return subprocess.run(
            [str(word) for word in command], **{"capture_output": True, **defaults, **options}
        )

    def inspect(self, name: str) -> dict[str, Any]:
        """Return the description of a container or an image."""
        return json.loads(self("inspect", name))[0]

    def has_image(self, name: str) -> bool:
        return self.attempt("podman", "image", "exists", name).returncode == 0

    def build(self, dockerfile: str, image: str, *options: str) -> str:
        """Build an image from a file of the repository and return its name."""
        self(
            *("build", "--format=docker", "--network=host", f"--tag={image}"),
            *(f"--file={ROOT / dockerfile}", *self._pip_volumes(), *options, ROOT),
        )
        return image

    def base(self) -> str:
        """Return the base image: $TFNMT_CONTAINER_BASE, or Debian with Python and pip."""
        named = os.environ.get("TFNMT_CONTAINER_BASE")
        if named:
            return named
        if not self.has_image(BASE):
            self._make_base(self._folder / "base")
        return BASE

    def _make_base(self, folder: Path) -> None:
        packages = "--include=python3,python3-pip"
        command = ("debootstrap", "--variant=minbase", packages, DEBIAN, folder, *_mirror())
        self.run(*command)
        # As in the image python:3.13-slim: `python`, and a pip that installs for all users.
        (folder / "usr/bin/python").symlink_to("python3")
        for marker in folder.glob("usr/lib/python3.*/EXTERNALLY-MANAGED"):
            marker.unlink()
        (folder / "etc/apt/sources.list").unlink()
        for unneeded in ("var/cache/apt", "var/lib/apt/lists", "var/log"):
            shutil.rmtree(folder / unneeded)
        with subprocess.Popen(["tar", "-C", folder, "-c", "."], stdout=subprocess.PIPE) as archive:
            self("import", f"--change=ENV PATH={PATH}", "-", BASE, stdin=archive.stdout)
        shutil.rmtree(folder)

    def _pip_volumes(self) -> list[str]:
        """Return mounts with the settings of this machine's pip, except local packages."""
        command = [sys.executable, "-m", "pip", "config", "list"]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        settings: dict[str, list[str]] = {}
        for line in listed.splitlines():
            key, _, quoted = line.partition("=")
            words = ast.literal_eval(quoted).split()
            settings[key.rpartition(".")[2]] = [word for word in words if not _is_local(word)]
            if key.endswith(".cert"):
                settings["cert"] = words
        configuration = self._folder / "pip.conf"
        lines = [f"{name} = {' '.join(words)}" for name, words in settings.items() if words]
        configuration.write_text("\n".join(["[global]", *lines]))
        certificates = settings.get("cert", [])
        return [
            f"--volume={configuration}:/etc/pip.conf:ro",
            *(f"--volume={file}:{file}:ro" for file in certificates),
        ]


def _is_local(word: str) -> bool:
    return word.startswith(("/", "file:"))


def _mirror() -> list[str]:
    """Return the mirror of this machine's apt, if there is one; debootstrap has a default."""
    if not shutil.which("apt-get"):
        return []
    command = ["apt-get", "indextargets", "--format=$(REPO_URI)", "Created-By: Packages"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return listed.split()[:1]


@dataclass(frozen=True)
class Container:
    """A container, and the address of its port on this machine."""

    podman: Podman
    name: str
    url: str

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.url + path, timeout=TIMEOUT, trust_env=False)

    def translate(self, texts: list[str], **fields: Any) -> httpx.Response:
        body = {"text": texts, **fields}
        url = f"{self.url}/api/v1/translate"
        return httpx.post(url, json=body, timeout=TIMEOUT, trust_env=False)

    def ready(self) -> bool:
        """Return whether the application in the container is ready."""
        try:
            return self.get("/readyz").status_code == 200
        except httpx.HTTPError:
            return False

    def state(self) -> dict[str, Any]:
        return self.podman.inspect(self.name)["State"]

    def restarts(self) -> int:
        return self.podman.inspect(self.name)["RestartCount"]

    def execute(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the container."""
        return self.podman.attempt("podman", "exec", self.name, *command)

    def healthy(self) -> bool:
        """Run the health check of the container."""
        command = ("podman", "healthcheck", "run", self.name)
        return self.podman.attempt(*command).returncode == 0

    def kill(self) -> None:
        """Kill the container's process from outside, which podman does not expect."""
        os.kill(self.state()["Pid"], signal.SIGKILL)

    def catches_sigterm(self) -> bool:
        """Return whether the process has a handler. The first one ignores signals without one."""
        status = Path(f"/proc/{self.state()['Pid']}/status").read_text()
        caught = int(status.split("SigCgt:")[1].split()[0], 16)
        return bool(caught >> signal.SIGTERM - 1 & 1)


def free_port() -> int:
    """Return a port of 127.0.0.1 that is free."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def wait_until(condition: Callable[[], bool], seconds: float = TIMEOUT) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "timeout"
        time.sleep(0.2)
