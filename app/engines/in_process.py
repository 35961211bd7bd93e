"""An exported model that runs in this process: a SavedModel or a LiteRT file."""

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from app.engines import litert, saved_model
from app.engines.engine import Columns, Engine
from app.errors import UserError

NICENESS = 5
"""Added to the niceness of a model's threads. They get a third of the CPU share of the thread that
accepts requests."""


class InProcessEngine(Engine):
    """Runs the signatures in threads. TensorFlow and LiteRT release the GIL while they compute."""

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
        load = litert.load if litert.is_export(path) else saved_model.load
        self._signatures = self._threads.submit(load, path, parallel_streams).result()

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
        inputs = {
            name: np.array([text.encode() for text in texts], object)
            for name, texts in columns.items()
        }
        outputs = self._signatures[signature](**inputs)
        return {
            name: _decode_strings(np.asarray(output).tolist()) for name, output in outputs.items()
        }


def _lower_priority() -> None:
    """Lower the priority of this thread, so that requests are accepted while all CPUs are busy.

    On Linux each thread has its own priority. Threads that TensorFlow starts from it inherit it.
    """
    os.nice(NICENESS)


def find_version(folder: Path) -> Path:
    """Return the folder of a version of an export.

    Args:
        folder: Folder of one version, or a model base path, of which the highest version is used.

    Raises:
        UserError: There is no exported model.
    """
    if _is_export(folder):
        return folder
    if not os.path.isdir(folder):  # unlike Path.is_dir, it accepts a name that is too long
        raise UserError(
            f"{folder}: no such folder; pass a folder written by tfnmt.export, or use tfnmt serve, "
            "which accepts the names of included models"
        )
    try:
        versions = [path for path in folder.iterdir() if _is_version(path)]
    except OSError as error:
        raise UserError(f"{folder}: {error.strerror}; change its permissions") from error
    if not versions:
        raise UserError(f"{folder}: contains no exported model; write one with tfnmt.export")
    return max(versions, key=lambda path: int(path.name))


def _is_version(path: Path) -> bool:
    return path.name.isdecimal() and _is_export(path)


def _is_export(folder: Path) -> bool:
    return saved_model.is_export(folder) or litert.is_export(folder)


def _decode_strings(value: Any) -> Any:
    """Replace bytes by strings in nested lists."""
    if isinstance(value, list):
        # Only lists of strings are copied: lists of attention weights are large.
        numbers = value and isinstance(value[0], float | bool)
        return value if numbers else list(map(_decode_strings, value))
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
