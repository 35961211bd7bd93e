"""Find bundles by a registered name or by their URL, and download them."""

import hashlib
from pathlib import Path
from urllib.parse import urlsplit

from tfnmt.data.corpora.downloads import Download, fetch
from tfnmt.errors import UserError
from tfnmt.loading.bundles import LICENSE, SUFFIX, unpack_bundle
from tfnmt.progress import log

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
    if not (folder / "config.yaml").is_file():
        archive = fetch(download, cache)
        unpack_bundle(archive, folder)
        terms = (folder / LICENSE).read_text().splitlines()[0]
        log(f"{model}: stored in {folder}; {terms}")
    return folder


def _by_url(model: str) -> Download | None:
    """Return the download of a URL. The file name includes a hash, because URLs may end alike."""
    url = urlsplit(model)
    if url.scheme not in ("http", "https"):
        return None
    stem = url.path.rpartition("/")[2].removesuffix(SUFFIX)
    if not stem.strip("."):
        raise UserError(f"--model={model}: not a bundle; the URL must end in NAME{SUFFIX}")
    name = f"{stem}-{_short_hash(model)}{SUFFIX}"
    return Download(model, size=0, name=name, can_be_mirrored=False)


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
