"""Shared parts of the serving benchmarks: sentences, JSON lines, percentiles, memory."""

import json
import re
from itertools import islice
from pathlib import Path
from statistics import quantiles
from typing import Any

from tfnmt.data.corpora.text_files import read_lines
from tfnmt.data.corpora.toy import grammar
from tfnmt.errors import UserError

TOY_SENTENCES = 500


def print_result(task: str, **fields: Any) -> None:
    """Print a measurement as a JSON line with the task `serving.<task>`."""
    print(json.dumps({"task": f"serving.{task}", **fields}), flush=True)


def read_sentences(path: str | None) -> list[str]:
    """Read sentences, one per line.

    Args:
        path: A text file. None returns sentences of the toy corpus's test set.

    Raises:
        UserError: The file is empty.
    """
    if path is None:
        return [source for source, _ in islice(grammar.pairs("test"), TOY_SENTENCES)]
    sentences = list(read_lines(Path(path)))
    if not sentences:
        raise UserError(f"{path}: empty file; add sentences, one per line")
    return sentences


def percentiles(seconds: list[float]) -> dict[str, float]:
    """Return the percentiles 50, 95 and 99 in milliseconds; empty for fewer than two values."""
    if len(seconds) < 2:
        return {}
    cut_points = quantiles(seconds, n=100, method="inclusive")
    return {f"p{n}_ms": round(1000 * cut_points[n - 1], 1) for n in (50, 95, 99)}


def resident_mb(pid: int | None) -> int | None:
    """Return the resident memory of a process in MB, or None if `pid` is None.

    Raises:
        UserError: The process does not exist.
    """
    if pid is None:
        return None
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError as error:
        raise UserError(
            f"--pid={pid}: no such process; give the id of the running server"
        ) from error
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    return int(found[1]) // 1024 if found else None
