"""The images contain the files that they need, and no setuid file or secret."""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.containers.podman import ROOT, Podman

SECRET_NAMES = re.compile(r"\.git|\.env|\.netrc|\.pypirc|id_(rsa|ed25519)|.*\.(key|p12|pfx)")
PRIVATE_KEY = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----\s+[A-Za-z0-9+/=]{20}")
MAX_SCANNED = 1_000_000
"""Bytes of a file that is searched for private keys."""

MAX_MEGABYTES = {"app_image": 400, "train_image": 3500}
"""Maximum size of an image without its base."""


class Image(NamedTuple):
    """An image and its files."""

    podman: Podman
    key: str
    name: str
    root: Path

    def files(self) -> Iterator[Path]:
        for folder, folders, names in os.walk(self.root):
            yield from (Path(folder, name) for name in folders + names)


@pytest.fixture(params=["app_image", "train_image"])
def image(podman: Podman, request: pytest.FixtureRequest) -> Iterator[Image]:
    name = request.getfixturevalue(request.param)
    yield Image(podman, request.param, name, Path(podman("image", "mount", name)))
    podman("image", "unmount", name)


def test_image_has_no_setuid_files(image: Image) -> None:
    modes = {path: path.lstat().st_mode for path in image.files()}
    assert len(modes) > 1000
    assert not [path for path, mode in modes.items() if stat.S_ISREG(mode) and mode & 0o6000]


def test_image_lets_no_user_change_its_files(image: Image) -> None:
    for path in image.files():
        mode = path.lstat().st_mode
        if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
            assert not mode & stat.S_IWOTH or mode & stat.S_ISVTX, path


def test_image_contains_no_secrets(image: Image) -> None:
    for path in image.files():
        assert not SECRET_NAMES.fullmatch(path.name), path
        if path.is_file() and not path.is_symlink() and path.stat().st_size < MAX_SCANNED:
            assert not PRIVATE_KEY.search(path.read_bytes()), path
    configuration = image.root / "etc" / "pip.conf"
    assert not configuration.exists() or not configuration.read_text()


def test_image_contains_the_package_but_not_the_source_folder(image: Image) -> None:
    (package,) = image.root.glob("opt/tfnmt/lib/python3.*/site-packages/tfnmt")
    assert (package / "cli.py").read_bytes() == (ROOT / "tfnmt" / "cli.py").read_bytes()
    assert not (image.root / "tfnmt").exists()
    assert (package.parent / "tensorflow").exists() == (image.key == "train_image")


def test_image_adds_only_known_variables(image: Image) -> None:
    base = image.podman.inspect(image.podman.base())["Config"]["Env"]
    added = set(image.podman.inspect(image.name)["Config"]["Env"]).difference(base)
    names = {variable.partition("=")[0] for variable in added}
    own = {"HOME", "MPLCONFIGDIR"} if image.key == "train_image" else {"XDG_CACHE_HOME"}
    assert names == {"PATH", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"} | own


def test_image_runs_as_nobody(image: Image) -> None:
    assert image.podman.inspect(image.name)["Config"]["User"] == "65534:65534"


def test_image_size_is_limited(image: Image) -> None:
    base, size = (
        image.podman.inspect(name)["Size"] / 1e6 for name in (image.podman.base(), image.name)
    )
    print(f"{image.key}: {size:.0f} MB, of which {base:.0f} MB are the base")
    assert size - base < MAX_MEGABYTES[image.key]
