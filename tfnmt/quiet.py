"""The first import of TensorFlow: with our settings, and without its chatter on stderr."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

SETTINGS = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    # oneDNN's kernels use what the processor has; TensorFlow's own are built for the oldest one.
    # On a processor without AVX-512 TensorFlow leaves them off, and takes twice as long.
    "TF_ENABLE_ONEDNN_OPTS": "1",
}
"""Environment variables that must be set before the import; the user's own values stay."""


def set_environment() -> None:
    """Makes the settings, for this process and those that it starts."""
    os.environ["KERAS_BACKEND"] = "tensorflow"  # training and search need it
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)


def import_tensorflow() -> None:
    """Imports TensorFlow, Keras and the tokenizer's operations.

    To be called when the user's mistakes have been found: it takes seconds.
    """
    set_environment()
    with silent_stderr():
        import keras_nlp
        import tensorflow as tf

        del keras_nlp
        tf.constant(0)  # the first tensor looks for devices, aloud


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
