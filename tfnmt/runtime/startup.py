"""The first import of TensorFlow: environment settings, threads, and silence on stderr."""

import gc
import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tfnmt.runtime.cluster import is_distributed
from tfnmt.runtime.streams import open_missing_descriptors

# --- Settings, made before the import ------------------------------------------------------------

ENVIRONMENT = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    # oneDNN kernels use the instructions of this CPU; TensorFlow's own kernels are built for the
    # oldest CPUs. Without AVX-512, TensorFlow disables oneDNN by default and takes twice as long.
    "TF_ENABLE_ONEDNN_OPTS": "1",
}
"""Environment variables that must be set before the import. Values set by the user are kept."""

CPU_COUNT = int(os.environ.get("TFNMT_CPUS") or len(os.sched_getaffinity(0)))
"""The CPUs that this process may use. TFNMT_CPUS is set for one of several workers on a machine."""

PARALLEL_STREAMS = min(CPU_COUNT, 8)
"""Number of batches computed in parallel; limited, because each batch needs memory."""


def set_environment() -> None:
    """Set ENVIRONMENT for this process and its child processes."""
    os.environ["KERAS_BACKEND"] = "tensorflow"  # required by training and decoding
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def configure_threads() -> None:
    """Configure TensorFlow for PARALLEL_STREAMS; call this before TensorFlow is imported.

    An operation uses the threads of one stream, even if fewer streams are active.
    """
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", str(CPU_COUNT // PARALLEL_STREAMS))
    os.environ.setdefault("TF_NUM_INTEROP_THREADS", str(PARALLEL_STREAMS))


def configure_for_single_sentences() -> None:
    """Configure TensorFlow for batches of a few rows; call this before `import_tensorflow`.

    Selects TensorFlow's own kernels, because a call of a oneDNN kernel costs more than it saves on
    few rows. A single sentence then takes a third to a half of the time.
    """
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    configure_threads()


# --- The import ----------------------------------------------------------------------------------

UNUSED_BY_KERAS = "matplotlib"
"""Keras imports it for an image gallery that tfnmt never shows; hiding it saves 0.5 s or more."""


def import_tensorflow(operations: str = "keras_nlp") -> None:
    """Import TensorFlow, and a package that registers the operations of the tokenizer.

    The import takes seconds, so check flags and files before it.

    Args:
        operations: The package: keras_nlp, which also imports Keras, or tensorflow_text, which is
            enough to run an export.
    """
    set_environment()
    with silence_stderr(), _no_garbage_collection(), _hidden(UNUSED_BY_KERAS):
        import tensorflow as tf

        importlib.import_module(operations)
        if not is_distributed():  # with several hosts, TensorFlow must be configured first
            tf.constant(0)  # the first tensor initializes the devices, which prints to stderr


@contextmanager
def _hidden(module: str) -> Iterator[None]:
    """Make imports of a module fail temporarily."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[module]


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Disable garbage collection: imported objects remain, and scanning them costs a second."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()  # also exclude them from later collections
        gc.enable()


@contextmanager
def silence_stderr() -> Iterator[None]:
    """Discard output to file descriptor 2, because C++ code prints there at any log level."""
    open_missing_descriptors()
    original = os.dup(2)
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 2)
        yield
    finally:
        os.dup2(original, 2)
        os.close(original)
        os.close(null)
