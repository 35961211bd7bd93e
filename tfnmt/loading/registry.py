"""Find bundles by a registered name, a path or a URL, and unpack them."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tfnmt.errors import UserError
from tfnmt.loading import SUFFIX
from tfnmt.progress import log
from tfnmt.runs.checkpoints import sha256
from tfnmt.runtime.files import file_lock, remove_leftovers

MODELS: dict[str, str] = {
    "tatoeba-en-de-fr-es": "b75bee9bb88f92c5fa509beac28354c5d71ddfe01dc6af590a1e49d2161a5f3e",
    "tatoeba-en-de-fr-es-small": "c3c152582e416a0080a7e675c0fdae9d825261a75b5f39803ed6c3aff476bb99",
    "tatoeba-en-de-fr-es-float16": (
        "2eba80f2bf555057fe984dd110c075bca41a05d5592fff90ea9f0effaa3bb36b"
    ),
}
"""The SHA-256 checksums of the bundles of tfnmt, by name. models/README.md describes them."""

DEFAULT_MODEL = "tatoeba-en-de-fr-es"
"""The model that translates if there is no run. It is part of the wheel."""

BASE_URL = "TFNMT_MODELS_URL"
"""The environment variable with the URL of a folder of bundles."""


def find_bundle(model: str, cache: Path) -> Path | None:
    """Return the folder of the model in a bundle, downloaded and unpacked first if necessary.

    Args:
        model: A registered name, the path of a file, or a URL.
        cache: The folder of the downloaded and unpacked bundles.

    Returns:
        The folder of a run or of a LiteRT export, or None if `model` is none of these.

    Raises:
        UserError: The file or the URL is not that of a bundle, or the download failed.
    """
    if model in MODELS:
        name, folder = model, cache / f"{model}-{MODELS[model][:8]}"
    else:
        name = _name_of_file(Path(model)) if os.path.isfile(model) else _name_of_url(model)
        folder = cache / name
    if not name:
        return None
    if not folder.is_dir():
        with _unpacking(folder):
            if not folder.is_dir():  # otherwise another process has unpacked it
                _unpack(model, name, folder)
    return folder


def _unpack(model: str, name: str, folder: Path) -> None:
    """Find or download a bundle, and unpack it into a folder of the cache."""
    # Imported only here: these modules take longer to import than a sentence to translate.
    from tfnmt.loading.bundles import license_title, unpack_bundle

    file = Path(model) if os.path.isfile(model) else _shipped(model)
    unpack_bundle(file or _download(model, name, folder.parent), folder)
    log(f"{model}: stored in {folder}; {license_title(folder)}")


def _shipped(model: str) -> Path | None:
    """Return the bundle that is part of a clone or of an installed package, if there is one."""
    package = Path(__file__).resolve().parents[1]
    paths = (folder / "models" / f"{model}{SUFFIX}" for folder in (package, package.parent))
    return next((path for path in paths if model in MODELS and path.is_file()), None)


def _download(model: str, name: str, cache: Path) -> Path:
    """Return the archive of a bundle in the cache, downloaded first if necessary."""
    from tfnmt.data.corpora.downloads import Download, fetch

    file, url, checksum = f"{name}{SUFFIX}", model, None
    if model in MODELS:
        base = os.environ.get(BASE_URL, "").rstrip("/")
        if not base and not (cache / file).is_file():
            raise UserError(
                f"--model={model}: not part of this installation; set {BASE_URL} to the URL of a "
                f"folder with {file}, or put this file into {cache}"
            )
        url, checksum = f"{base}/{file}", f"sha256:{MODELS[model]}"
    return fetch(Download(url, 0, checksum, name=file, can_be_mirrored=False), cache)


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


def _name_of_file(path: Path) -> str:
    """Return a name for the model in a file. It includes a hash, because the file may change."""
    return f"{path.name.removesuffix(SUFFIX)}-{sha256(path)[:8]}"


def _name_of_url(model: str) -> str:
    """Return the name of the bundle at a URL, or "" if it is no URL.

    The name includes a hash, because URLs may end alike.
    """
    try:
        url = urlsplit(model)
    except ValueError as error:
        raise UserError(f"--model={model}: not a URL ({error}); correct it") from error
    if url.scheme not in ("http", "https"):
        return ""
    stem = url.path.rpartition("/")[2].removesuffix(SUFFIX)
    if not stem.strip("."):
        raise UserError(f"--model={model}: not a bundle; the URL must end in NAME{SUFFIX}")
    return f"{stem}-{_short_hash(model)}"


def _short_hash(text: str) -> str:
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:8]
