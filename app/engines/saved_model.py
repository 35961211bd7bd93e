"""An exported model in this process."""

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from app.engines.engine import SIGNATURES, Columns, Engine
from app.errors import UserError
from app.processors import PROCESSORS

SETTINGS = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    # A call of oneDNN's kernels costs more than it saves on few rows: docs/app.md.
    "TF_ENABLE_ONEDNN_OPTS": "0",
}


NICER = 5
"""How much nicer a model's threads are than the one that takes requests: a third of its share."""


class SavedModelEngine(Engine):
    """Runs the signatures in threads, for TensorFlow lets go of Python while it works."""

    def __init__(self, path: Path, lanes: int) -> None:
        """`path` is one version's folder."""
        self.lanes = lanes
        self._version = path.name
        self._threads = ThreadPoolExecutor(lanes, "model", initializer=_step_back)
        self._signatures = self._threads.submit(_load, path).result()

    async def call(self, signature: str, columns: Columns) -> dict[str, list[Any]]:
        """Asks a signature."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._run, signature, columns)

    async def version(self) -> str:
        """The one that was loaded."""
        return self._version

    async def close(self) -> None:
        """Lets go of the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _run(self, signature: str, columns: Columns) -> dict[str, list[Any]]:
        import tensorflow as tf

        inputs = {name: tf.constant(texts, tf.string) for name, texts in columns.items()}
        outputs = self._signatures[signature](**inputs)
        return {name: _plain(output.numpy().tolist()) for name, output in outputs.items()}


def _step_back() -> None:
    """Lets whoever takes requests in, refuses and answers go first where processors are short.

    On Linux a priority is a thread's own; those that TensorFlow starts from this one inherit it.
    """
    os.nice(NICER)


def share_processors() -> None:
    """A thread an operation: what works side by side, lanes and halves, keeps the processors busy.

    The operations of a sentence are small: to spread one over processors costs more than it saves.
    """
    threading = _import_tensorflow().config.threading
    threading.set_intra_op_parallelism_threads(1)
    threading.set_inter_op_parallelism_threads(PROCESSORS)


def find_version(folder: Path) -> Path:
    """The folder of a version: the one given, or the highest number below it."""
    if (folder / "saved_model.pb").is_file():
        return folder
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; give one that tfnmt.export has written")
    versions = [path for path in folder.iterdir() if _is_version(path)]
    if not versions:
        raise UserError(f"{folder}: holds no exported model; write one with tfnmt.export")
    return max(versions, key=lambda path: int(path.name))


def _is_version(path: Path) -> bool:
    return path.name.isdecimal() and (path / "saved_model.pb").is_file()


def _load(path: Path) -> Any:
    tf = _import_tensorflow()
    try:
        with _silent_stderr():
            signatures = tf.saved_model.load(str(path)).signatures
    except Exception as error:  # TensorFlow raises whatever its parts raise
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{path}: cannot be loaded: {reason}; export the run again") from error
    missing = [name for name in SIGNATURES if name not in signatures]
    if missing:
        names = ", ".join(missing)
        raise UserError(f"{path}: lacks the signatures {names}; export the run again")
    return signatures


def _import_tensorflow() -> Any:
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        with _silent_stderr():
            import tensorflow as tf
            import tensorflow_text  # noqa: F401  its operations are registered by the import
    except ImportError as error:
        raise UserError(
            f"--model: {error.name} is not installed; install it, or name a server by --backend"
        ) from error
    return tf


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """Descriptor 2 goes nowhere for a while: C++ code writes to it whatever the log level."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _plain(value: Any) -> Any:
    """Strings for bytes, however deep."""
    if isinstance(value, list):
        return value if value and isinstance(value[0], float | bool) else list(map(_plain, value))
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
