"""Lanes: batches that are translated side by side.

An operation on the few rows of a search gains next to nothing from a second thread, a second batch
nearly all of it: docs/performance.md.
"""

import os

PROCESSORS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
LANES = min(PROCESSORS or 1, 8)
"""At most so many, for each has a batch in memory."""


def share_processors(lanes: int = LANES) -> None:
    """Shares the processors out among that many; to be called before TensorFlow is imported."""
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", str(max(1, (PROCESSORS or 1) // LANES)))
    os.environ.setdefault("TF_NUM_INTEROP_THREADS", str(lanes))
