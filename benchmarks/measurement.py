"""A measurement of something served, as a line of JSON."""

import json
import re
from pathlib import Path
from statistics import quantiles
from typing import Any

from tfnmt.errors import UserError


def tell(task: str, **fields: Any) -> None:
    """Prints it."""
    print(json.dumps({"task": f"serving.{task}", **fields}), flush=True)


def percentiles(times: list[float]) -> dict[str, float]:
    """Those of some seconds, in milliseconds."""
    if len(times) < 2:
        return {}
    cuts = quantiles(times, n=100, method="inclusive")
    return {f"p{n}_ms": round(1000 * cuts[n - 1], 1) for n in (50, 95, 99)}


def resident(pid: int | None) -> int | None:
    """The resident memory of a process in MB; None of no process."""
    if pid is None:
        return None
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError as error:
        raise UserError(f"--pid={pid}: no such process, or it has ended") from error
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    return int(found[1]) // 1024 if found else None
