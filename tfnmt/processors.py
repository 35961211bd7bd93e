"""The processors that this process may use, which can be fewer than the machine has."""

import os

_HAS_AFFINITY = hasattr(os, "sched_getaffinity")  # Linux has
PROCESSORS = len(os.sched_getaffinity(0)) if _HAS_AFFINITY else os.cpu_count() or 1
