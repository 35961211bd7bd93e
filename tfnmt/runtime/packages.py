"""The packages of an installation: those that tfnmt always needs, and those that an extra adds."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from typing import TYPE_CHECKING

from tfnmt.errors import UserError

if TYPE_CHECKING:
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

EXTRAS = {"train": "tensorflow", "app": "fastapi", "ctranslate2": "ctranslate2", "cluster": "ray"}
"""The extras for users. Each has a package that shows whether the extra is installed."""


def supported_python() -> "SpecifierSet":
    """Return the supported versions of Python."""
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(_tfnmt().metadata["Requires-Python"])


def requirements(extra: str = "") -> "list[Requirement]":
    """Return the packages that an extra adds, or those that tfnmt always needs."""
    from packaging.requirements import Requirement  # slow, and seldom needed

    found = map(Requirement, _tfnmt().requires or ())
    return [
        each
        for each in found
        if (each.marker.evaluate({"extra": extra}) if each.marker else not extra)
    ]


def is_installed(package: str) -> bool:
    """Return whether a package is installed, in any version."""
    return any(metadata.distributions(name=package))


@contextmanager
def report_missing_packages() -> Iterator[None]:
    """Turn the failed import of a package into a UserError that names its extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        extra = _find_extra(error.name or "")
        if extra is None:
            raise
        raise UserError(f"{error.name}: not installed; run pip install 'tfnmt[{extra}]'") from error


def _find_extra(module: str) -> str | None:
    """Return the first extra with the package of a module, or None if there is none."""
    for extra in EXTRAS:
        if any(_is_module_of(module, each.name) for each in requirements(extra)):
            return extra
    return None


def _is_module_of(module: str, package: str) -> bool:
    """Return whether a package has a module: tensorflow-serving-api has tensorflow_serving."""
    name = package.lower().replace("-", "_")
    return name == module or name.startswith(f"{module}_")


def _tfnmt() -> metadata.Distribution:
    try:
        return metadata.distribution("tfnmt")
    except metadata.PackageNotFoundError as error:
        raise UserError("tfnmt: not installed; run pip install --editable .") from error
