"""The model card: what an export or a bundle tells about itself, whoever asks.

Files and other runs are in it by their names alone: in what folders they lay is nobody's business.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tfnmt import __version__
from tfnmt.config import Config
from tfnmt.data.corpora.catalog import licence
from tfnmt.runs.run import Run

PACKAGES = ("tensorflow", "tensorflow-text", "keras", "keras-nlp", "sentencepiece")


def make_card(
    run: Run, config: Config, step: int, data_licence: str | None = None
) -> dict[str, Any]:
    """Languages, limits, evaluations, configuration, versions, and the licence of the text."""
    return {
        "source": config.data.source,
        "target": config.data.target,
        "run": _last_part(str(run.path)),
        "step": step,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "limits": _limits(config),
        "training_data": {
            "corpus": config.data.corpus or "own text",
            "licence": data_licence or licence(config.data),
        },
        "evaluations": [_without_folders(line) for line in run.evaluations()],
        "versions": {"tfnmt": __version__, **{name: version(name) for name in PACKAGES}},
        "config": without_folders(config).model_dump(mode="json"),
    }


def without_folders(config: Config) -> Config:
    """The configuration, with the names alone of the files and runs that it was trained with."""
    data, tokenizer, training = config.data, config.tokenizer, config.training
    names = {"train": _names(data.train), "val": _names(data.val)}
    taken = {"from_run": _name(tokenizer.from_run)}
    begun = {"init_from": _name(training.init_from)}
    return config.model_copy(
        update={
            "data": data.model_copy(update=names),
            "tokenizer": tokenizer.model_copy(update=taken),
            "training": training.model_copy(update=begun),
        }
    )


def _without_folders(evaluation: dict[str, Any]) -> dict[str, Any]:
    files = {key: evaluation[key] for key in ("model", "split") if key in evaluation}
    shorter = evaluation | {key: _name(path) for key, path in files.items()}
    if "against" in evaluation:
        shorter["against"] = _without_folders(evaluation["against"])
    return shorter


def _names(paths: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if paths is None else tuple(map(_last_part, paths))


def _name(paths: str | None) -> str | None:
    """The name of a file or a folder; of several, with commas between, their names."""
    return paths and ",".join(map(_last_part, paths.split(",")))


def _last_part(path: str) -> str:
    """In UTF-8, as the card is, whatever the name of the file is in."""
    return Path(path).name.encode(errors="replace").decode()


def _limits(config: Config) -> dict[str, int]:
    """In pieces, eos counted."""
    return {
        "max_source_length": config.decoding.max_source_length,
        "max_translation_length": config.decoding.longest,
        "longest_trained": config.data.max_length,
        "beam_size": config.decoding.beam_size,
    }
