"""Lanes: batches that are translated, or parts of a batch that are trained on, side by side.

An operation on the few rows of a search gains next to nothing from a second thread, a second batch
much of it; a training, with more rows, a fifth: docs/performance.md.
"""

import os

from tfnmt.processors import PROCESSORS

LANES = min(PROCESSORS, 8)
"""At most so many, for each has a batch in memory."""


def share_processors() -> None:
    """Has lanes work side by side; to be called before TensorFlow is imported.

    An operation gets the threads of one lane, also where fewer of them are used.
    """
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", str(PROCESSORS // LANES))
    os.environ.setdefault("TF_NUM_INTEROP_THREADS", str(LANES))
