"""The model card: public information about the model in an export or a bundle.

Cards name files and runs without their folders, because folder names may be private.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tfnmt import __version__
from tfnmt.config import Config
from tfnmt.data.corpora.catalog import license
from tfnmt.data.preparation.tokenizer import Tokenizer
from tfnmt.runs.run import Run

PACKAGES = ("tensorflow", "tensorflow-text", "keras", "keras-nlp", "sentencepiece")


def make_card(
    run: Run, config: Config, step: int, data_license: str | None = None
) -> dict[str, Any]:
    """Return the model card: languages, limits, license, evaluations, versions and configuration.

    Args:
        run: The run.
        config: Its configuration, with the decoding settings of the export.
        step: The step of the weights.
        data_license: The terms of the training data; those of the named corpus if None.
    """
    return {
        "source": config.data.source,
        "target": config.data.target,
        "directions": list(config.data.all_directions),
        "targets": list(Tokenizer(run.tokenizer_model()).language_tokens),
        "run": _file_name(str(run.path)),
        "step": step,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "limits": _limits(config),
        "training_data": {
            "corpus": config.data.corpus or "custom data",
            "license": data_license or license(config.data),
        },
        "evaluations": [_strip_evaluation(evaluation) for evaluation in run.evaluations()],
        "versions": {"tfnmt": __version__, **{name: version(name) for name in PACKAGES}},
        "config": strip_folders(config).model_dump(mode="json"),
    }


def strip_folders(config: Config) -> Config:
    """Return a configuration that names files and runs without their folders."""
    data, tokenizer, training = config.data, config.tokenizer, config.training
    files = {"train": _file_names(data.train), "val": _file_names(data.val)}
    return config.model_copy(
        update={
            "data": data.model_copy(update=files),
            "tokenizer": tokenizer.model_copy(update={"from_run": _names(tokenizer.from_run)}),
            "training": training.model_copy(update={"init_from": _names(training.init_from)}),
        }
    )


def _strip_evaluation(evaluation: dict[str, Any]) -> dict[str, Any]:
    paths = {key: evaluation[key] for key in ("model", "split") if key in evaluation}
    stripped = evaluation | {key: _names(path) for key, path in paths.items()}
    if "against" in evaluation:
        stripped["against"] = _strip_evaluation(evaluation["against"])
    return stripped


def _file_names(paths: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if paths is None else tuple(map(_file_name, paths))


def _names(paths: str | None) -> str | None:
    """Return the file name of each path in a list separated by commas."""
    return paths and ",".join(map(_file_name, paths.split(",")))


def _file_name(path: str) -> str:
    """Return the file name, with `?` for bytes that are not UTF-8, because the card is UTF-8."""
    return Path(path).name.encode(errors="replace").decode()


def _limits(config: Config) -> dict[str, int]:
    """Return the limits of the model in tokens, including EOS."""
    return {
        "max_source_length": config.decoding.max_source_length,
        "max_translation_length": config.decoding.max_translation_length,
        "longest_trained": config.data.max_length,
        "beam_size": config.decoding.beam_size,
    }
