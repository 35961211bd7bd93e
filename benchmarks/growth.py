"""Measure how the driver of an executor grows with the number of shards: empty work.

    python -m benchmarks.growth [--shards=20000] [--workers=1,2,4] [--lines=2000000]

Prints one JSON line per measurement. `index` finds the shards of a file of short lines: one shard
per line, so that there are many. `local` and `ray` process shards that need no work. peak_mb is the
peak memory of the driver, which is a new process each time. Then follows a table from 10^6 to 10^9
lines in shards of 65,536 lines. It is extrapolated from the most expensive measurement.
"""

import json
import resource
import tempfile
import time
from collections.abc import Generator
from contextlib import nullcontext
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from absl import flags

from tfnmt.cli import run_command
from tfnmt.errors import UsageError
from tfnmt.runtime.executors import LocalExecutor, Process
from tfnmt.runtime.shards import SHARD_LINES, LineIndex, ResumableParts, Shard, index_lines

FLAGS = flags.FlagValues()
flags.DEFINE_integer("shards", 20_000, "shards of a measurement", 1, flag_values=FLAGS)
flags.DEFINE_integer("lines", 2_000_000, "lines of the indexed file", 1, flag_values=FLAGS)
flags.DEFINE_list("workers", ["1", "2", "4"], "numbers of Ray workers", flag_values=FLAGS)

LINE = b"a line of twenty-six bytes\n"


class NoWork:
    """Work that does nothing."""

    def load(self) -> Process:
        """Return the function for a shard."""
        return self._process

    def _process(self, shard: Shard, attempt: int) -> Generator[int, None, None]:
        yield shard.lines


def main(values: Any, positional: list[str]) -> None:
    """Print the measurements and the table."""
    if positional:
        raise UsageError(f"{positional[0]}: not expected; see --help")
    indexed = measure_in_process(measure_index, values.lines)
    measure_in_process(measure_run, values.shards, 0)
    runs = [measure_in_process(measure_run, values.shards, int(count)) for count in values.workers]
    slowest = max(run["seconds"] for run in runs) / values.shards
    bytes_per_shard = max(0.0, indexed["peak_mb"] - indexed["start_mb"]) / values.lines
    print(f"{'lines':>15} {'shards':>8} {'index, s':>9} {'driver, s':>10} {'shards, MB':>11}")
    for lines in (10**6, 10**7, 10**8, 10**9):
        shards = -(-lines // SHARD_LINES)
        index = lines * indexed["seconds"] / values.lines
        row = (lines, shards, index, shards * slowest, shards * bytes_per_shard)
        print("{:>15,} {:>8,} {:>9.1f} {:>10.1f} {:>11.2f}".format(*row))


def measure_in_process(function: Any, *arguments: int) -> dict[str, Any]:
    """Run a measurement in a new process, print it and return it."""
    with get_context("spawn").Pool(1) as pool:
        found: dict[str, Any] = pool.apply(function, arguments)
    print(json.dumps(found), flush=True)
    return found


def measure_index(lines: int) -> dict[str, Any]:
    """Find the shards of a file, one per line."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "text"
        with path.open("wb") as file:
            for _ in range(lines // 1000):
                file.write(LINE * 1000)
            file.write(LINE * (lines % 1000))
        start, begin = _peak(), time.perf_counter()
        found = len(index_lines(path, 1))
        seconds = time.perf_counter() - begin
    return {"kind": "index", "shards": found, "seconds": seconds, "start_mb": start, **_memory()}


def measure_run(count: int, workers: int) -> dict[str, Any]:
    """Process shards that need no work, with the local executor if there are 0 workers."""
    import numpy as np

    from benchmarks.growth import NoWork  # not of __main__, which workers cannot import

    index = LineIndex(np.arange(count), count, 1)
    shards = index.shards(Path("text"), Path("text"), ResumableParts(Path("out")))
    if workers:
        from tfnmt.runtime.ray_executor import RayExecutor

        opened: Any = RayExecutor(None, workers, 0, stall_seconds=600)
    else:
        opened = nullcontext(LocalExecutor())
    started = time.perf_counter()
    with opened as executor:
        ready = time.perf_counter() - started
        results = executor.run(NoWork(), shards, lambda units: None)
        next(results)  # all workers have been asked to load the work
        begin = time.perf_counter()
        rest = sum(1 for _ in results)
        seconds = (time.perf_counter() - begin) * count / rest
        kind = "ray" if workers else "local"
        found = {"kind": kind, "workers": workers, "shards": count, "ready_seconds": ready}
        return {**found, "seconds": seconds, **_memory()}


def _memory() -> dict[str, float]:
    return {"peak_mb": _peak()}


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    run_command(main, FLAGS, __doc__)
