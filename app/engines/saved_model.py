"""Loading a SavedModel."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from app.engines.engine import CPU_COUNT, SIGNATURES
from app.errors import UserError

ENVIRONMENT = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    # With few rows, a call of a oneDNN kernel costs more than it saves.
    "TF_ENABLE_ONEDNN_OPTS": "0",
}
"""Environment variables for TensorFlow, unless they are set already."""


def is_export(folder: Path) -> bool:
    """Return whether a folder is a SavedModel."""
    return os.path.isfile(folder / "saved_model.pb")


def configure_threads() -> None:
    """Run each operation in one thread, and as many operations in parallel as there are CPUs.

    The operations of a sentence are small. To split one between CPUs costs more than it saves.
    Parallel streams, and the two halves of a large batch, keep the CPUs busy.
    """
    threading = _import_tensorflow().config.threading
    threading.set_intra_op_parallelism_threads(1)
    threading.set_inter_op_parallelism_threads(CPU_COUNT)


def load(path: Path, parallel_streams: int) -> Any:
    """Return the signatures of a SavedModel.

    Raises:
        UserError: The model cannot be loaded, or an earlier version made it.
    """
    del parallel_streams  # TensorFlow runs any number of calls
    tf = _import_tensorflow()
    try:
        with silence_stderr():
            signatures = tf.saved_model.load(str(path)).signatures
    except Exception as error:  # TensorFlow documents no exception types
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{path}: cannot be loaded: {reason}; export the run again") from error
    missing = [name for name in SIGNATURES if name not in signatures]
    if missing:
        names = ", ".join(missing)
        raise UserError(f"{path}: signatures are missing: {names}; export the run again")
    return signatures


def _import_tensorflow() -> Any:
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        with silence_stderr():
            import tensorflow as tf
            import tensorflow_text  # noqa: F401  the import registers its operations
    except ModuleNotFoundError as error:
        raise UserError(
            f"{error.name}: not installed; run pip install 'tfnmt[train]', or use a LiteRT export "
            "or --backend=URL"
        ) from error
    return tf


@contextmanager
def silence_stderr() -> Iterator[None]:
    """Discard output to descriptor 2. C++ code writes there regardless of the log level."""
    saved, null_device = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null_device, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(null_device)
