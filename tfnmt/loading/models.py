"""What `--model` names: a run, or an export of one. Both translate in the same way.

Nothing here imports TensorFlow before `load`: a wrong name is reported at once.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfnmt.config import Config, SamplingConfig, build_config, merge
from tfnmt.errors import UsageError, UserError
from tfnmt.progress import say
from tfnmt.runs.checkpoints import check_weights, still_there
from tfnmt.runs.run import Run, home, newest_finished_run
from tfnmt.runtime.startup import import_tensorflow, silent_stderr

if TYPE_CHECKING:
    from tfnmt.decoding.lines import Signatures
    from tfnmt.decoding.translator import Translator

SAVED_MODEL = "saved_model.pb"
CARD = Path("assets.extra") / "model_card.json"
"""The model card inside an export; TensorFlow Serving passes over assets.extra."""


@dataclass(frozen=True)
class RunModel:
    """A run's weights."""

    run: Run
    weights: Path
    config: Config  # with the decoding that was asked for

    @property
    def name(self) -> str:
        """The run's folder."""
        return str(self.run.path)

    @property
    def step(self) -> int:
        """The update that the weights are from."""
        return int(self.weights.parent.name)

    @property
    def knows_its_text(self) -> bool:
        """Whether its configuration says where files of its own text lie: not that of a bundle."""
        return not (self.run.path / CARD.name).is_file()

    def load(self, prefix: str = "", sampling: SamplingConfig | None = None) -> "Signatures":
        """Its graphs, by the names that they have in an export, and `sample` and `alone`.

        Every translation begins with the prefix.
        """
        translator = self.load_translator(prefix)
        from tfnmt.decoding.compiled import AloneTranslator
        from tfnmt.decoding.signatures import signatures

        sampler = translator.sampler(sampling or SamplingConfig())
        alone = AloneTranslator(translator).translate
        return {**signatures(translator), "sample": sampler, "alone": alone}

    def load_translator(self, prefix: str = "") -> "Translator":
        """What is behind them."""
        import_tensorflow()
        from tfnmt.decoding.translator import load_translator

        tokenizer_model = self.run.tokenizer_model()
        check_weights(self.weights)
        with still_there(self.weights):
            return load_translator(self.weights, self.config, tokenizer_model, prefix)


@dataclass(frozen=True)
class ExportModel:
    """A version of an export."""

    path: Path
    card: dict[str, Any]

    @property
    def name(self) -> str:
        """The version's folder."""
        return str(self.path)

    @property
    def step(self) -> int:
        """The update that the weights are from."""
        return int(self.card["step"])

    @property
    def knows_its_text(self) -> bool:
        """Not where the files of its own text lay: its card has their names alone."""
        return False

    @property
    def config(self) -> Config:
        """The run's configuration, decoding as it is fixed in the graph."""
        return build_config(self.card["config"])

    def load(self) -> "Signatures":
        """Its graphs, by their names."""
        import_tensorflow("tensorflow_text")
        import tensorflow as tf

        try:
            with silent_stderr():  # SentencePiece announces its normalizer
                loaded = tf.saved_model.load(str(self.path))
        except Exception as error:  # TensorFlow raises whatever its parts raise
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise UserError(
                f"{self.path}: cannot be loaded ({reason}); export the run again"
            ) from error
        signatures: Signatures = loaded.signatures
        return signatures


def find_model(model: str | None, changes: dict[str, Any]) -> RunModel | ExportModel:
    """The model of that name, with some keys of `decoding` changed; None is the newest run."""
    if model is None:
        newest = newest_finished_run(home() / "runs")
        say(f"--model={newest.path}, the newest finished run")
        return find_run(newest.path, changes)
    path = find_folder(model)
    version = find_version(path)
    if version is None:
        return find_run(path, changes)
    if changes:
        # --max_length=source+N changes two keys.
        given = {key.replace("max_extra_length", "max_length") for key in changes}
        raise UsageError(
            *(f"--{name}: fixed in an export; give the run, or export it anew"
              for name in sorted(given))
        )  # fmt: skip
    return ExportModel(version, _read_card(version))


def find_folder(model: str) -> Path:
    """The folder that a `--model` means: itself, or that of a bundle, by its name or URL."""
    folder = Path(model)
    if folder.is_file():
        raise UserError(
            f"--model={model}: a file, where a folder is expected; unpack a bundle first"
        )
    if folder.exists():
        return folder
    from tfnmt.loading.registry import MODELS, find_bundle

    found = find_bundle(model, home() / ".cache" / "models")
    if found is None and folder.parent == Path() and MODELS:
        raise UserError(
            f"--model={model}: no such folder, and no such name; there are {', '.join(MODELS)}"
        )
    return found or folder


def find_run(path: Path, changes: dict[str, Any] | None = None) -> RunModel:
    """A run's weights, with some keys of `decoding` changed; says which weights it takes."""
    run = Run(path)
    config = run.config()
    if changes:
        decoding = merge(config.decoding.model_dump(), changes)
        config = build_config({**config.model_dump(), "decoding": decoding})
    weights = run.weights()
    say(f"weights: {weights.relative_to(path).parent} of {path}")
    return RunModel(run, weights, config)


def find_version(path: Path) -> Path | None:
    """The SavedModel in a folder: itself, or its highest version; None where it is no export."""
    if (path / SAVED_MODEL).is_file():
        return path
    versions = versions_in(path)
    return path / str(versions[-1]) if versions else None


def versions_in(folder: Path) -> list[int]:
    """The numbers of the versions in a folder, rising: as `export` writes them, 7 and not 007."""
    names = [file.parent.name for file in folder.glob(f"*/{SAVED_MODEL}")]
    return sorted(int(name) for name in names if name.isdecimal() and str(int(name)) == name)


def _read_card(version: Path) -> dict[str, Any]:
    try:
        card: dict[str, Any] = json.loads((version / CARD).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"{version / CARD}: no model card there; tfnmt.export writes one"
        ) from error
    return card
