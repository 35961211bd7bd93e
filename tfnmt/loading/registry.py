"""Find bundles by a registered name or by their URL, and download them."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tfnmt.data.corpora.downloads import Download, fetch
from tfnmt.errors import UserError
from tfnmt.loading.bundles import SUFFIX, license_title, unpack_bundle
from tfnmt.progress import log
from tfnmt.runtime.files import file_lock, remove_leftovers

MODELS: dict[str, str] = {}
"""The SHA-256 checksums of the bundles of tfnmt, by name. models/README.md describes them."""

DEFAULT_MODEL = "tatoeba-en-de-fr-es"
"""The model that translates if there is no run. It is part of the wheel."""

BASE_URL = "TFNMT_MODELS_URL"
"""The environment variable with the URL of a folder of bundles."""


def find_bundle(model: str, cache: Path) -> Path | None:
    """Return the folder of the model in a bundle, downloaded and unpacked first if necessary.

    Args:
        model: A registered name, or a URL.
        cache: The folder of the downloaded and unpacked bundles.

    Returns:
        The folder of a run or of a LiteRT export, or None if `model` is neither a registered name
        nor a URL.

    Raises:
        UserError: The URL does not name a bundle, or the download failed.
    """
    download = _by_name(model) or _by_url(model)
    if download is None:
        return None
    # A name with another checksum is another model.
    version = f"-{MODELS[model][:8]}" if model in MODELS else ""
    folder = cache / f"{download.file_name.removesuffix(SUFFIX)}{version}"
    if not folder.is_dir():
        with _unpacking(folder):
            if not folder.is_dir():  # otherwise another process has unpacked it
                unpack_bundle(_shipped(model) or _download(model, download, cache), folder)
                log(f"{model}: stored in {folder}; {license_title(folder)}")
    return folder


def _by_name(model: str) -> Download | None:
    """Return the download of a registered bundle. Its URL is relative if BASE_URL is not set."""
    if model not in MODELS:
        return None
    base = os.environ.get(BASE_URL, "").rstrip("/")
    url = f"{base}/{model}{SUFFIX}"
    return Download(url, size=0, checksum=f"sha256:{MODELS[model]}", can_be_mirrored=False)


def _shipped(model: str) -> Path | None:
    """Return the bundle that is part of a clone or of an installed package, if there is one."""
    package = Path(__file__).resolve().parents[1]
    paths = (folder / "models" / f"{model}{SUFFIX}" for folder in (package, package.parent))
    return next((path for path in paths if model in MODELS and path.is_file()), None)


def _download(model: str, download: Download, cache: Path) -> Path:
    path = cache / download.file_name
    if model in MODELS and not os.environ.get(BASE_URL) and not path.is_file():
        raise UserError(
            f"--model={model}: not part of this installation; set {BASE_URL} to the URL of a "
            f"folder with {download.file_name}, or put this file into {cache}"
        )
    return fetch(download, cache)


@contextmanager
def _unpacking(folder: Path) -> Iterator[None]:
    """Exclude other processes that unpack the same bundle, and remove what killed ones left."""
    lock = folder.with_name(f".{folder.name}.lock")
    try:
        with file_lock(lock, f"{folder}: another process is unpacking this bundle"):
            remove_leftovers(folder.parent, folder.name)
            yield
    except OSError as error:
        raise UserError(f"{folder}: {error.strerror or error}; choose a writable folder") from error


def _by_url(model: str) -> Download | None:
    """Return the download of a URL. The file name includes a hash, because URLs may end alike."""
    try:
        url = urlsplit(model)
    except ValueError as error:
        raise UserError(f"--model={model}: not a URL ({error}); correct it") from error
    if url.scheme not in ("http", "https"):
        return None
    stem = url.path.rpartition("/")[2].removesuffix(SUFFIX)
    if not stem.strip("."):
        raise UserError(f"--model={model}: not a bundle; the URL must end in NAME{SUFFIX}")
    name = f"{stem}-{_short_hash(model)}{SUFFIX}"
    return Download(model, size=0, name=name, can_be_mirrored=False)


def _short_hash(text: str) -> str:
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:8]
