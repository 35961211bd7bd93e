"""The model card: what an export or a bundle tells about itself."""

from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from tfnmt import __version__
from tfnmt.config import Config
from tfnmt.data.catalog import licence
from tfnmt.exporting.models import RunModel

PACKAGES = ("tensorflow", "tensorflow-text", "keras", "keras-nlp", "sentencepiece")


def make_card(model: RunModel, data_licence: str | None = None) -> dict[str, Any]:
    """Languages, limits, evaluations, configuration, versions, and the licence of the text."""
    config = model.config
    return {
        "source": config.data.source,
        "target": config.data.target,
        "run": model.run.path.name,
        "step": model.step,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "limits": _limits(config),
        "training_data": {
            "corpus": config.data.corpus or "own text",
            "licence": data_licence or licence(config.data),
        },
        "evaluations": model.run.evaluations(),
        "versions": {"tfnmt": __version__, **{name: version(name) for name in PACKAGES}},
        "config": config.model_dump(mode="json"),
    }


def _limits(config: Config) -> dict[str, int]:
    """In pieces, eos counted."""
    return {
        "max_source_length": config.decoding.max_source_length,
        "max_translation_length": config.decoding.longest,
        "longest_trained": config.data.max_length,
        "beam_size": config.decoding.beam_size,
    }
