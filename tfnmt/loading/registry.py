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

MODELS: dict[str, Download] = {}
"""Registered bundles by name, each with its pinned checksum."""


def find_bundle(model: str, cache: Path) -> Path | None:
    """Return the run folder of a bundle, downloaded first if necessary.

    Args:
        model: A registered name, or a URL.
        cache: The folder of the downloaded bundles.

    Returns:
        The run folder, or None if `model` is neither a registered name nor a URL.

    Raises:
        UserError: The URL does not name a bundle, or the download failed.
    """
    download = MODELS.get(model) or _by_url(model)
    if download is None:
        return None
    folder = cache / download.file_name.removesuffix(SUFFIX)
    if not folder.is_dir():
        with _unpacking(folder):
            if not folder.is_dir():  # otherwise another process has unpacked it
                unpack_bundle(fetch(download, cache), folder)
                log(f"{model}: stored in {folder}; {license_title(folder)}")
    return folder


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
