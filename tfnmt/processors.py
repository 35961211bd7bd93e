"""The processors that this process may use, which can be fewer than the machine has."""

import os

PROCESSORS = len(os.sched_getaffinity(0))
