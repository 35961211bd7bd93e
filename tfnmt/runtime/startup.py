"""The first import of TensorFlow: with our settings, and without its chatter on stderr."""

import gc
import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tfnmt.runtime.cluster import is_spread

PROCESSORS = len(os.sched_getaffinity(0))


LANES = min(PROCESSORS, 8)
"""At most so many, for each has a batch in memory."""


def share_processors() -> None:
    """Has lanes work side by side; to be called before TensorFlow is imported.

    An operation gets the threads of one lane, also where fewer of them are used.
    """
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", str(PROCESSORS // LANES))
    os.environ.setdefault("TF_NUM_INTEROP_THREADS", str(LANES))


SETTINGS = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    # oneDNN's kernels use what the processor has; TensorFlow's own are built for the oldest one.
    # On a processor without AVX-512 TensorFlow leaves them off, and takes twice as long.
    "TF_ENABLE_ONEDNN_OPTS": "1",
}
"""Environment variables that must be set before the import; the user's own values stay."""

KERAS_CAN_DO_WITHOUT = "matplotlib"
"""For a gallery of images that nothing here shows; half a second and more."""


def expect_few_rows() -> None:
    """Chooses TensorFlow's own kernels: a call of oneDNN's costs more than it saves on few rows.

    To be called before `import_tensorflow`. A sentence alone takes a third to a half of the time.
    """
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    share_processors()


def set_environment() -> None:
    """Makes the settings, for this process and those that it starts."""
    os.environ["KERAS_BACKEND"] = "tensorflow"  # training and search need it
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)


def import_tensorflow(operations: str = "keras_nlp") -> None:
    """Imports TensorFlow and the package that brings the tokenizer's operations.

    keras_nlp brings Keras too; to run an export, tensorflow_text is enough. To be called when the
    user's mistakes have been found: it takes seconds.
    """
    set_environment()
    with silent_stderr(), _no_garbage(), _without(KERAS_CAN_DO_WITHOUT):
        import tensorflow as tf

        importlib.import_module(operations)
        if not is_spread():  # else TensorFlow must learn of the other hosts first
            tf.constant(0)  # the first tensor looks for devices, aloud


@contextmanager
def _without(module: str) -> Iterator[None]:
    """Who tries to import it is told that it is not there; later it is."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[module]


@contextmanager
def _no_garbage() -> Iterator[None]:
    """Imports make objects that stay: to look through them for garbage costs a second."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()  # nor are they looked through later
        gc.enable()


@contextmanager
def silent_stderr() -> Iterator[None]:
    """Descriptor 2 goes nowhere for a while: C++ code writes to it whatever the log level."""
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
