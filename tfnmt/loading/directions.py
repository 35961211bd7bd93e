"""The direction that a model translates in: what the flags select, and what the model has."""

from tfnmt.documents.detection import primary_language
from tfnmt.errors import UsageError
from tfnmt.loading.models import ExportModel, RunModel
from tfnmt.progress import log

Model = RunModel | ExportModel


def check_source(model: Model, source: str | None) -> None:
    """Raise a UsageError if a model does not know the language of the text in any direction."""
    trained = model.config.data.all_directions
    known = sorted({language for direction in trained for language in direction.split("-")})
    if source is not None and primary_language(source) not in map(primary_language, known):
        raise UsageError(
            f"--source={source}: unknown; {model.name} knows {', '.join(known)} (directions "
            f"{', '.join(trained)})"
        )


def find_target(model: Model, source: str | None, target: str | None) -> str:
    """Return the language to translate to. An untrained direction is allowed, and logged.

    Args:
        model: The model.
        source: The language of the text, if known.
        target: The language to translate to; None for a model that has only one.

    Raises:
        UsageError: The model does not translate to this language, or to more than one.
    """
    trained = model.config.data.all_directions
    languages = model.targets or model.config.data.targets
    if target is None and len(model.config.data.targets) == 1:
        target = model.config.data.targets[0]
    if target not in languages:
        flag = "--target: missing" if target is None else f"--target={target}: unknown"
        raise UsageError(
            f"{flag}; {model.name} translates to {', '.join(languages)} (directions "
            f"{', '.join(trained)})"
        )
    if source is not None and f"{source}-{target}" not in trained:
        log(
            f"{model.name}: was not trained on {source}-{target}, only on {', '.join(trained)}; "
            "expect bad translations"
        )
    return target


def find_direction(model: Model, direction: str | None) -> tuple[str, str]:
    """Return the (source, target) of `--direction`, or the only direction of the model.

    Raises:
        UsageError: The direction is missing, not of the form `en-de`, or to an unknown language.
    """
    trained = model.config.data.all_directions
    if direction is None and len(trained) > 1:
        raise UsageError(f"--direction: missing; {model.name} has {', '.join(trained)}; name one")
    source, dash, target = (trained[0] if direction is None else direction).partition("-")
    languages = model.targets or model.config.data.targets
    if not (source and dash) or source == target or target not in languages:
        raise UsageError(
            f"--direction={direction}: unknown; {model.name} has {', '.join(trained)}; name one"
        )
    find_target(model, source, target)
    return source, target


def only_source(model: Model) -> str:
    """Return the language that a model translates from, or "" if it has several."""
    sources = {name.split("-")[0] for name in model.config.data.all_directions}
    return sources.pop() if len(sources) == 1 else ""


def bound_language(model: Model, target: str) -> str | None:
    """Return the language that the graphs of a model take, or None if they take none."""
    return target if model.targets else None
