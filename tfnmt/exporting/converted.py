"""A run that LiteRT translates. The run is converted once, and the result stays in the cache.

This module imports TensorFlow only to convert a run.
"""

import hashlib
import json
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfnmt.config import SamplingConfig
from tfnmt.errors import UsageError, UserError
from tfnmt.exporting import ENGINES, QUANTIZATIONS
from tfnmt.loading.models import ExportModel, LiteRTExport, RunModel, litert_origin
from tfnmt.progress import log
from tfnmt.runs.run import cache_folder
from tfnmt.runtime.files import file_lock, remove_leftovers
from tfnmt.runtime.startup import import_tensorflow

if TYPE_CHECKING:
    from tfnmt.decoding.lines import Signatures

FORMAT = 3
"""Version of the conversion. Increase it when the same run gives another file."""


@dataclass(frozen=True)
class ConvertedRun(RunModel):
    """A run that LiteRT translates."""

    quantization: str

    @property
    def origin(self) -> dict[str, Any]:
        """The checkpoint for evaluations, and what LiteRT computes with."""
        return super().origin | litert_origin(self.quantization)

    def load(self, prefix: str = "", sampling: SamplingConfig | None = None) -> "Signatures":
        """Return the signatures of the LiteRT file, those of an export.

        Args:
            prefix: Must be empty. The graphs of the file have no prefix.
            sampling: The settings of `sample`, which the file does not contain.

        Raises:
            UserError: The run cannot be converted, or its file in the cache is damaged.
        """
        if prefix:
            raise ValueError("a converted run has no prefix")
        folder = self._folder()
        if not folder.is_dir():
            self._convert(folder)
        try:
            return LiteRTExport(folder, {}).load()
        except UserError as error:
            problem = f"{folder}: cannot be loaded ({error}); remove this folder"
            raise UserError(problem) from error

    def _folder(self) -> Path:
        """Return the folder in the cache, whose name has a hash of everything that is converted."""
        weights = self.weights_id or _checksum(self.weights.read_bytes())
        parts = {
            "format": FORMAT,
            "weights": weights,
            "tokenizer": _checksum(self.tokenizer_model()),
            "model": self.config.model.model_dump(),
            "decoding": self.config.decoding.model_dump(),
            "quantization": self.quantization,
        }
        key = _checksum(json.dumps(parts, sort_keys=True).encode())
        return cache_folder() / "litert" / f"{self.run.path.resolve().name}-{key[:16]}"

    def _convert(self, folder: Path) -> None:
        """Convert the run, unless another process is doing it."""
        try:
            lock = folder.with_name(f".{folder.name}.lock")
            with file_lock(lock, f"{folder}: another process is converting this run"):
                remove_leftovers(folder.parent, folder.name)
                if not folder.is_dir():
                    self._write(folder)
        except OSError as error:
            problem = f"{folder}: {error.strerror or error}; choose a writable folder"
            raise UserError(problem) from error

    def _write(self, folder: Path) -> None:
        log(f"converting {self.name} to LiteRT ({self.quantization}) once; this takes a minute")
        import_tensorflow()
        from tfnmt.exporting.litert import publish_litert
        from tfnmt.exporting.parity import HARD_TEXTS
        from tfnmt.loading.card import make_card

        card = make_card(self.run, self.config, self.step) | self.origin
        publish_litert(self, card, HARD_TEXTS, [], folder)
        log(f"stored in {folder}")


def select_engine(
    model: RunModel | ExportModel, engine: str | None, quantization: str | None
) -> RunModel | ExportModel:
    """Return the model with the engine that translates it, and log the engine of a run.

    Args:
        model: The model.
        engine: One of ENGINES, or None for the default.
        quantization: One of QUANTIZATIONS, or None for float32.

    Raises:
        UsageError: The model is an export, or LiteRT does not support its settings.
        UserError: LiteRT is not installed.
    """
    flags = {"--engine": engine, "--quantization": quantization}
    if isinstance(model, ExportModel):
        given = [name for name, value in flags.items() if value is not None]
        if given:
            problem = "fixed in an export; pass the run folder instead"
            raise UsageError(*(f"{name}: {problem}" for name in given))
        return model
    if quantization and engine != "litert":
        raise UsageError("--quantization: needs --engine=litert; add it, or omit --quantization")
    log(f"engine: {engine or ENGINES[0]}")
    if engine != "litert":
        return model
    check_convertible(model)
    if find_spec("ai_edge_litert") is None:
        raise UserError("--engine=litert: needs ai-edge-litert; install it")
    return ConvertedRun(model.run, model.weights, model.config, quantization or QUANTIZATIONS[0])


def check_convertible(model: RunModel) -> None:
    """Raise a UsageError if LiteRT has no operations for the settings of a run."""
    size = model.config.decoding.no_repeat_ngram
    if size:
        raise UsageError(
            f"decoding.no_repeat_ngram={size}: not supported by LiteRT; omit it, or use TensorFlow"
        )


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
