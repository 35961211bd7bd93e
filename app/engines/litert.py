"""Loading a LiteRT export, which needs no TensorFlow."""

import os
from pathlib import Path
from typing import Any

from app.engines.saved_model import silence_stderr
from app.errors import UserError


def is_export(folder: Path) -> bool:
    """Return whether a folder is a LiteRT export."""
    return os.path.isfile(folder / "model.tflite")


def load(path: Path, parallel_streams: int) -> Any:
    """Return the signatures of a LiteRT export.

    Args:
        path: The folder of one version.
        parallel_streams: The number of sentences that are translated in parallel.

    Raises:
        UserError: The model cannot be loaded, or ai-edge-litert is not installed.
    """
    try:
        from tfnmt.errors import UserError as ModelError
        from tfnmt.litert.model import LiteRTModel
    except ImportError as error:
        raise UserError(f"{path}: needs {error.name}; install it") from error
    try:
        with silence_stderr():  # LiteRT logs its kernels
            return LiteRTModel(path, parallel_streams).signatures
    except ModelError as error:
        raise UserError(str(error)) from error
