"""Find the model that `--model` names: a run, an export or a bundle. All translate the same way.

TensorFlow is imported only by the `load` methods, so that an invalid name is reported immediately.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from tfnmt.config import Config, SamplingConfig, build_config, merge
from tfnmt.errors import UsageError, UserError, did_you_mean
from tfnmt.litert.files import GRAPHS, TOKENIZER
from tfnmt.loading import SUFFIX
from tfnmt.progress import log
from tfnmt.runs.checkpoints import (
    CHECKSUMS,
    WEIGHTS,
    averaged_steps,
    check_weights,
    report_missing,
)
from tfnmt.runs.run import Run, base_folder, cache_folder, newest_finished_run
from tfnmt.runtime.files import parse_json
from tfnmt.runtime.startup import PARALLEL_STREAMS, import_tensorflow, silence_stderr

if TYPE_CHECKING:
    from tfnmt.decoding.lines import Signatures
    from tfnmt.decoding.translator import Translator

SAVED_MODEL = "saved_model.pb"
CARD = Path("assets.extra") / "model_card.json"
"""The model card in a SavedModel. TensorFlow Serving ignores the folder assets.extra."""

RUN_FILES = (
    "config.yaml",
    TOKENIZER,
    "prepared",
    "validations.jsonl",
    "evaluations.jsonl",
    "summary.json",
    CARD.name,
)


@dataclass(frozen=True)
class RunModel:
    """A run, with one of its checkpoints."""

    run: Run
    weights: Path
    config: Config  # with the requested changes of `decoding`

    @property
    def name(self) -> str:
        """The run folder."""
        return str(self.run.path)

    @property
    def step(self) -> int:
        """The training step of the weights."""
        return int(self.weights.parent.name)

    @property
    def weights_id(self) -> str | None:
        """The recorded checksum of the weights; None for weights without one."""
        try:
            checksum: str = json.loads((self.weights.parent / CHECKSUMS).read_text())[WEIGHTS]
        except (OSError, ValueError, LookupError, TypeError):
            return None
        return checksum

    @property
    def origin(self) -> dict[str, Any]:
        """The checkpoint for evaluations, and the steps that were averaged, if they are known."""
        return {
            "weights": str(self.weights.parent.relative_to(self.run.path)),
            "averaged_steps": averaged_steps(self.weights.parent),
        }

    @property
    def targets(self) -> tuple[str, ...]:
        """The languages with a language token; none for a single direction."""
        from tfnmt.data.preparation.tokenizer import Tokenizer

        return tuple(Tokenizer(self.run.tokenizer_model()).language_tokens)

    @property
    def files(self) -> list[Path]:
        """The files of the run, which no output may replace."""
        checkpoints = (self.run.averaged, self.run.best, self.run.checkpoints())
        inside = (file for each in checkpoints for file in each.folder.rglob("*"))
        return [*(self.run.path / name for name in RUN_FILES), *inside]

    @property
    def has_data_paths(self) -> bool:
        """Whether the configuration has complete paths of custom data. That of a bundle has not."""
        return not (self.run.path / CARD.name).is_file()

    def load(self, prefix: str = "", sampling: SamplingConfig | None = None) -> "Signatures":
        """Return the signatures of an export, and `sample` and `token_log_probs`.

        Args:
            prefix: Text that every translation begins with.
            sampling: The settings of `sample`.

        Raises:
            UserError: The weights are damaged or missing.
        """
        translator = self.load_translator(prefix)
        from tfnmt.decoding.inspector import scoring_graph
        from tfnmt.decoding.translator import signatures

        return {
            **signatures(translator),
            "sample": translator.sampler(sampling or SamplingConfig()),
            "token_log_probs": scoring_graph(translator.transformer),
        }

    def load_translator(self, prefix: str = "") -> "Translator":
        """Return the Translator of the run.

        Args:
            prefix: Text that every translation begins with.

        Raises:
            UserError: The weights are damaged or missing.
        """
        import_tensorflow()
        from tfnmt.decoding.translator import load_translator

        tokenizer_model = self.tokenizer_model()
        check_weights(self.weights)
        with report_missing(self.weights):
            return load_translator(self.weights, self.config, tokenizer_model, prefix)

    def tokenizer_model(self) -> bytes:
        """Return the content of the SentencePiece model file."""
        return self.run.tokenizer_model()


@dataclass(frozen=True)
class ExportModel:
    """One version of an export as a SavedModel."""

    path: Path
    card: dict[str, Any]

    @property
    def name(self) -> str:
        """The folder of the version."""
        return str(self.path)

    @property
    def step(self) -> int:
        """The training step of the weights."""
        return int(self.card["step"])

    @property
    def weights_id(self) -> str:
        """The time of the export."""
        return str(self.card.get("created"))

    @property
    def origin(self) -> dict[str, Any]:
        """The checkpoint for evaluations, and the steps that were averaged: as in the card."""
        return {key: self.card.get(key) for key in ("weights", "averaged_steps")}

    @property
    def targets(self) -> tuple[str, ...]:
        """The languages with a language token; none for a single direction."""
        return tuple(self.card.get("targets", ()))

    @property
    def files(self) -> list[Path]:
        """The files of the export, which no output may replace."""
        return list(self.path.rglob("*"))

    @property
    def has_data_paths(self) -> bool:
        """Whether the configuration has complete paths of custom data: never, as in a bundle."""
        return False

    @property
    def config(self) -> Config:
        """The configuration of the run, with the decoding settings of the exported graph."""
        return build_config(self.card["config"])

    def load(self) -> "Signatures":
        """Return the signatures of the SavedModel.

        Raises:
            UserError: The SavedModel cannot be loaded, or an earlier version made it.
        """
        import_tensorflow("tensorflow_text")
        import tensorflow as tf

        try:
            with silence_stderr():  # SentencePiece logs its normalizer
                loaded = tf.saved_model.load(str(self.path))
        except Exception as error:  # TensorFlow raises many types
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise UserError(
                f"{self.path}: cannot be loaded ({reason}); export the run again"
            ) from error
        signatures: Signatures = loaded.signatures
        if "source_tokens" not in loaded.signatures["align"].structured_outputs:
            raise UserError(f"{self.path}: made by an earlier version; export the run again")
        return signatures


class LiteRTExport(ExportModel):
    """One version of an export as a LiteRT file, which needs no TensorFlow."""

    @property
    def origin(self) -> dict[str, Any]:
        """The checkpoint for evaluations, and what LiteRT computes with."""
        return super().origin | litert_origin(str(self.card.get("quantization")))

    def tokenizer_model(self) -> bytes:
        """Return the content of the SentencePiece model file."""
        try:
            return (self.path / TOKENIZER).read_bytes()
        except OSError as error:
            problem = f"{self.path / TOKENIZER}: {error.strerror}; export the run again"
            raise UserError(problem) from error

    def load(self) -> "Signatures":
        """Return the signatures of the LiteRT file, those of a SavedModel.

        Raises:
            UserError: A file is missing or damaged, or ai-edge-litert is not installed.
        """
        try:
            from tfnmt.litert.model import LiteRTModel
        except ImportError as error:
            raise UserError(
                f"{self.path}: needs {error.name}; install ai-edge-litert and sentencepiece"
            ) from error
        with silence_stderr():  # LiteRT logs its kernels
            return LiteRTModel(self.path, PARALLEL_STREAMS).signatures


def litert_origin(quantization: str) -> dict[str, Any]:
    """Return what the evaluation of a model records that LiteRT translates with."""
    return {"engine": "litert", "quantization": quantization}


def find_model(model: str | None, changes: dict[str, Any]) -> RunModel | ExportModel:
    """Return the model with this name.

    Args:
        model: A run folder, an export, or the name, path or URL of a bundle. None selects the
            newest finished run, or else the default one of the included models.
        changes: Keys of `decoding` to change.

    Raises:
        UserError: There is no such model.
        UsageError: The model is an export, whose decoding settings are fixed.
    """
    path = _default_folder() if model is None else find_folder(model)
    version = find_version(path)
    if version is None:
        if path.is_dir() and not Run(path).exists():
            raise UserError(
                f"{path}: neither a run (config.yaml is missing) nor an export (no version such as "
                f"1/{SAVED_MODEL}); choose the folder of a run or of an export"
            )
        return find_run(path, changes)
    if changes:
        # --max_length=source+N changes two keys.
        given = {key.replace("max_extra_length", "max_length") for key in changes}
        problem = "fixed in an export; pass the run folder instead"
        raise UsageError(*(f"--{name}: {problem}" for name in sorted(given)))
    kind = LiteRTExport if (version / GRAPHS).is_file() else ExportModel
    return kind(version, _read_card(version))


def _default_folder() -> Path:
    """Return the folder of the newest finished run, or else of the default model; log its name."""
    newest = newest_finished_run(base_folder() / "runs")
    if newest is not None:
        log(f"--model={newest.path} (the newest finished run)")
        return newest.path
    from tfnmt.loading.registry import DEFAULT_MODEL

    log(f"--model={DEFAULT_MODEL} (the model that comes with tfnmt)")
    return find_folder(DEFAULT_MODEL)


def find_folder(model: str) -> Path:
    """Return the folder of a model: a path, or the name, path or URL of a bundle.

    A path that does not exist is returned unchanged.

    Raises:
        UserError: There is no such folder or bundle.
    """
    folder = Path(model)
    # Unlike Path's methods, os.path accepts names that are too long.
    if os.path.isfile(folder) and not model.endswith(SUFFIX):
        raise UserError(
            f"--model={model}: a file; choose a run folder, an export, or a bundle, whose name "
            f"ends in {SUFFIX}"
        )
    if os.path.isdir(folder):
        return folder
    from tfnmt.loading.registry import MODELS, find_bundle

    bundle = find_bundle(model, cache_folder() / "models")
    if bundle is None and folder.parent == Path():
        raise UserError(
            f"--model={model}: no such folder or model; {did_you_mean(model, MODELS)}the included "
            f"models are {', '.join(MODELS)}"
        )
    return bundle or folder


def find_run(path: Path, changes: dict[str, Any] | None = None) -> RunModel:
    """Return a run, and log which of its checkpoints is used.

    Args:
        path: The run folder.
        changes: Keys of `decoding` to change.

    Raises:
        UserError: The folder is not a run, or has no checkpoint.
    """
    run = Run(path)
    if not run.exists() and find_version(path):
        raise UserError(f"{path}: an export; this command needs the run that it was made from")
    config = run.config()
    if changes:
        decoding = merge(config.decoding.model_dump(), changes)
        config = build_config({**config.model_dump(), "decoding": decoding})
    weights = run.weights()
    log(f"weights: {weights.relative_to(path).parent} of {path}")
    return RunModel(run, weights, config)


def find_version(path: Path) -> Path | None:
    """Return the folder of an export: `path`, or its highest version; None if not an export."""
    if not os.path.isdir(path):
        return None
    if _is_export(path):
        return path
    versions = versions_in(path)
    return path / str(versions[-1]) if versions else None


def versions_in(folder: Path) -> list[int]:
    """Return the version numbers in a folder, in ascending order. Ignores names such as 007."""
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return sorted(
        int(name)
        for name in names
        if name.isdecimal() and str(int(name)) == name and _is_export(folder / name)
    )


def _is_export(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (SAVED_MODEL, GRAPHS))


class _TrainingData(BaseModel):
    corpus: str
    license: str


class _Card(BaseModel):
    """The fields of a model card that commands read."""

    model_config = ConfigDict(strict=True)

    source: str
    target: str
    directions: list[str] = []
    targets: list[str] = []
    run: str
    step: int
    created: str | None = None
    training_data: _TrainingData
    versions: dict[str, str]
    config: dict[str, Any]
    weights: str | None = None
    averaged_steps: list[int] | None = None
    quantization: str | None = None


def _read_card(version: Path) -> dict[str, Any]:
    path = version / (CARD.name if (version / GRAPHS).is_file() else CARD)
    try:
        card: dict[str, Any] = parse_json(path.read_bytes())
        build_config(_Card.model_validate(card).config)
    except (OSError, ValueError, UserError) as error:
        raise UserError(f"{path}: missing or invalid model card; export the run again") from error
    return card
