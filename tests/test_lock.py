"""requirements.lock pins what pyproject.toml requires."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCK = (ROOT / "requirements.lock").read_text()

EXTRAS = [extra for extra in PROJECT["optional-dependencies"] if extra != "dev"]


def pins(python: str) -> dict[str, str]:
    """Return the pinned version of each package for a version of Python on Linux."""
    environment = {"python_version": python, "python_full_version": f"{python}.0"}
    found = [Requirement(line.rstrip(" \\")) for line in LOCK.splitlines() if line[:1].isalpha()]
    chosen = [pin for pin in found if not pin.marker or pin.marker.evaluate(environment)]
    versions = {canonicalize_name(pin.name): str(pin.specifier)[2:] for pin in chosen}
    assert len(versions) == len(chosen)
    return versions


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_lock_satisfies_the_requirements(python: str) -> None:
    pinned = pins(python)
    extras = [PROJECT["optional-dependencies"][extra] for extra in EXTRAS]
    for required in map(Requirement, sum(extras, PROJECT["dependencies"])):
        version = pinned.get(canonicalize_name(required.name))
        assert version, f"{required.name}: not pinned; run make lock"
        assert required.specifier.contains(version), f"{required}: not {version}; run make lock"


def test_lock_has_a_checksum_for_every_package() -> None:
    entries = re.split(r"\n(?=\S)", LOCK.strip())
    packages = [entry for entry in entries if not entry.startswith("#")]
    assert len(packages) > 100
    assert [entry for entry in packages if "--hash=sha256:" not in entry] == []


def test_lock_names_no_address() -> None:
    assert "://" not in LOCK
