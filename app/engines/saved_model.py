"""An exported model that runs in this process."""

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from app.engines.engine import SIGNATURES, Columns, Engine
from app.errors import UserError

# CPU_COUNT, find_version() and _silence_stderr() repeat code of tfnmt. The application
# deliberately does not import tfnmt: it must run where only an export is installed.
CPU_COUNT = len(os.sched_getaffinity(0))
"""CPUs that this process may use, which can be fewer than the machine has."""

ENVIRONMENT = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    # With few rows, a call of a oneDNN kernel costs more than it saves.
    "TF_ENABLE_ONEDNN_OPTS": "0",
}
"""Environment variables for TensorFlow, unless they are set already."""

NICENESS = 5
"""Added to the niceness of a model's threads. They get a third of the CPU share of the thread that
accepts requests."""


class SavedModelEngine(Engine):
    """Runs the signatures in threads. TensorFlow releases the GIL while it computes."""

    def __init__(self, path: Path, parallel_streams: int) -> None:
        """Load the model.

        Args:
            path: Folder of one version of an export.
            parallel_streams: Number of threads, each of which runs one batch at a time.

        Raises:
            UserError: The model cannot be loaded.
        """
        self.parallel_streams = parallel_streams
        self._version = path.name
        self._threads = ThreadPoolExecutor(parallel_streams, "model", initializer=_lower_priority)
        self._signatures = self._threads.submit(_load, path).result()

    async def call(self, signature: str, columns: Columns) -> dict[str, list[Any]]:
        """Run a signature in a thread; see `Engine.call`."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._run, signature, columns)

    async def version(self) -> str:
        """Return the version that was loaded."""
        return self._version

    async def close(self) -> None:
        """Stop the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _run(self, signature: str, columns: Columns) -> dict[str, list[Any]]:
        import tensorflow as tf

        inputs = {name: tf.constant(texts, tf.string) for name, texts in columns.items()}
        outputs = self._signatures[signature](**inputs)
        return {name: _decode_strings(output.numpy().tolist()) for name, output in outputs.items()}


def _lower_priority() -> None:
    """Lower the priority of this thread, so that requests are accepted while all CPUs are busy.

    On Linux each thread has its own priority. Threads that TensorFlow starts from it inherit it.
    """
    os.nice(NICENESS)


def configure_threads() -> None:
    """Run each operation in one thread, and as many operations in parallel as there are CPUs.

    The operations of a sentence are small. To split one between CPUs costs more than it saves.
    Parallel streams, and the two halves of a large batch, keep the CPUs busy.
    """
    threading = _import_tensorflow().config.threading
    threading.set_intra_op_parallelism_threads(1)
    threading.set_inter_op_parallelism_threads(CPU_COUNT)


def find_version(folder: Path) -> Path:
    """Return the folder of a version of an export.

    Args:
        folder: Folder of one version, or a model base path, of which the highest version is used.

    Raises:
        UserError: There is no exported model.
    """
    if (folder / "saved_model.pb").is_file():
        return folder
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; pass a folder written by tfnmt.export")
    versions = [path for path in folder.iterdir() if _is_version(path)]
    if not versions:
        raise UserError(f"{folder}: contains no exported model; write one with tfnmt.export")
    return max(versions, key=lambda path: int(path.name))


def _is_version(path: Path) -> bool:
    return path.name.isdecimal() and (path / "saved_model.pb").is_file()


def _load(path: Path) -> Any:
    tf = _import_tensorflow()
    try:
        with _silence_stderr():
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
        with _silence_stderr():
            import tensorflow as tf
            import tensorflow_text  # noqa: F401  the import registers its operations
    except ImportError as error:
        raise UserError(
            f"--model: {error.name} is not installed; install it, or use --backend=URL"
        ) from error
    return tf


@contextmanager
def _silence_stderr() -> Iterator[None]:
    """Discard output to descriptor 2. C++ code writes there regardless of the log level."""
    saved, null_device = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null_device, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(null_device)


def _decode_strings(value: Any) -> Any:
    """Replace bytes by strings in nested lists."""
    if isinstance(value, list):
        # Only lists of strings are copied: lists of attention weights are large.
        numbers = value and isinstance(value[0], float | bool)
        return value if numbers else list(map(_decode_strings, value))
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
