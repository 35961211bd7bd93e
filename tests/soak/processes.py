"""Processes that are watched: memory, file descriptors and disk space until their end."""

import math
import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tfnmt.errors import UserError

SAMPLE_SECONDS = 2.0
STOP_SECONDS = 300.0
"""Time to stop after SIGTERM."""

SLOPE_SECONDS = 240.0
"""Shorter lives have no slope, because memory grows until each shape of batch has occurred."""


class Sample(NamedTuple):
    """The state of a process at one time."""

    seconds: float  # since its start
    megabytes: float  # resident memory
    descriptors: int
    disk_megabytes: float  # of the watched folder


class Kill(NamedTuple):
    """The end of a process."""

    seconds: float  # after its start
    number: signal.Signals


class Process:
    """A command that is watched until its end.

    Args:
        command: The command.
        folder: The folder whose disk space is measured. Its parent has the log and the folder for
            temporary files.
        name: The name of the log.
    """

    def __init__(self, command: list[str], folder: Path, name: str) -> None:
        temporary = folder.parent / "tmp"
        temporary.mkdir(exist_ok=True)
        self.folder = folder
        self.log = folder.parent / f"{name}.log"
        self.samples: list[Sample] = []
        self._start = time.monotonic()
        with self.log.open("wb") as log:
            environment = os.environ | {"TMPDIR": str(temporary)}
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def watch(self, seconds: float) -> bool:
        """Sample the process for a time; return whether it still runs."""
        end = time.monotonic() + seconds
        while self._process.poll() is None and time.monotonic() < end:
            time.sleep(SAMPLE_SECONDS)
            with suppress(OSError):  # the process has just ended
                self.samples.append(self._sample())
        return self._process.poll() is None

    def end(self, number: signal.Signals | None) -> bool:
        """End the process with a signal; return False if it has succeeded before.

        Raises:
            UserError: The exit status is unexpected.
        """
        try:
            if number is not None and self._process.poll() is None:
                self._process.send_signal(number)
                self._process.wait(STOP_SECONDS)
        finally:
            self.kill()
        ends = {0} if number is None else {0, -number, 128 + number}
        if self._process.returncode not in ends:
            raise UserError(
                f"{self.log}: exit status {self._process.returncode}; log:\n{self.log.read_text()}"
            )
        return self._process.returncode != 0

    def kill(self) -> None:
        """Kill the process if it still runs."""
        self._process.kill()
        self._process.wait()

    def end_by(self, kill: Kill | None) -> bool:
        """Wait for the kill; return False if the process has succeeded before it.

        Raises:
            UserError: The exit status is unexpected.
        """
        try:
            self.watch(kill.seconds if kill else math.inf)
        except BaseException:
            self.kill()
            raise
        return self.end(kill.number if kill else None)

    def summary(self) -> dict[str, Any]:
        """Return the extremes of the samples, and the slope of the memory."""
        if not self.samples:
            return {"seconds": 0}
        last = self.samples[-1].seconds
        return {
            "seconds": round(last, 1),
            "peak_mb": round(max(sample.megabytes for sample in self.samples), 1),
            "slope_mb_per_hour": self._slope() if last >= SLOPE_SECONDS else None,
            "max_descriptors": max(sample.descriptors for sample in self.samples),
            "max_disk_mb": round(max(sample.disk_megabytes for sample in self.samples), 1),
        }

    def _slope(self) -> float:
        """Return the slope of the memory by least squares, without the first third of the life."""
        steady = [each for each in self.samples if each.seconds >= self.samples[-1].seconds / 3]
        hours = [sample.seconds / 3600 for sample in steady]
        return round(float(np.polyfit(hours, [each.megabytes for each in steady], 1)[0]), 1)

    def _sample(self) -> Sample:
        process = Path(f"/proc/{self._process.pid}")
        pages = int((process / "statm").read_text().split()[1])
        return Sample(
            time.monotonic() - self._start,
            pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
            len(os.listdir(process / "fd")),
            _disk_megabytes(self.folder),
        )


def _disk_megabytes(folder: Path) -> float:
    blocks = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # removed in the meantime
                blocks += os.lstat(os.path.join(parent, name)).st_blocks
    return blocks * 512 / 1e6
