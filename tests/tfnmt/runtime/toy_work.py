"""Work for tests of the executors: uppercase lines, with injected failures."""

import os
import signal
import time
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tfnmt.errors import UserError
from tfnmt.runtime.executors import Process
from tfnmt.runtime.shards import ResumableParts, Shard, index_lines, write_part


class Uppercase(NamedTuple):
    """Uppercases lines. The first line with a trap sets it off, once or in every attempt."""

    traps: Path  # a trap that was set off leaves a file here

    def load(self) -> Process:
        return self._process

    def _process(self, shard: Shard, attempt: int) -> Generator[int, None, int]:
        lines = (line.decode().rstrip("\n") for line in shard.read())
        yield from write_part(shard.part, attempt, self._uppercase(lines), shard.lines)
        return os.getpid()

    def _uppercase(self, lines: Iterable[str]) -> Iterator[str]:
        for line in lines:
            if line.startswith("always"):
                self._set_off(line.removeprefix("always "))
            elif line.startswith("once") and not (trap := self.traps / line).exists():
                trap.touch()
                self._set_off(line.removeprefix("once "))
            elif line == "sleep":
                time.sleep(0.5)
            yield line.upper()

    def _set_off(self, trap: str) -> None:
        if trap == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif trap == "hang":
            time.sleep(3600)
        elif trap == "refuse":
            raise UserError("the line: refused; omit it")
        else:
            raise ValueError(trap)


def text(*traps: str, lines: int = 200) -> str:
    """Return numbered lines, some of them traps."""
    numbered = [f"line {number}" for number in range(lines)]
    step = lines // (len(traps) + 1)
    for place, trap in enumerate(traps, start=1):
        numbered[place * step] = trap
    return "".join(f"{line}\n" for line in numbered)


def make_shards(folder: Path, content: str, shard_lines: int = 16) -> list[Shard]:
    """Write a file; return its shards, whose parts belong to the output `out`."""
    source = folder / "in"
    source.write_text(content)
    parts = ResumableParts(folder / "out")
    parts.start({})
    return list(index_lines(source, shard_lines).shards(source, source, parts))


def joined(folder: Path, shards: list[Shard]) -> str:
    """Return the joined output."""
    ResumableParts(folder / "out").join(len(shards))
    return (folder / "out").read_text()
