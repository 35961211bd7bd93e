"""The registry: bundles that are known by name, and bundles at a URL."""

import hashlib
from pathlib import Path
from urllib.parse import urlsplit

from tfnmt.data.corpora.downloads import Download, fetch
from tfnmt.errors import UserError
from tfnmt.loading.bundles import ENDING, LICENCE, unpack_bundle
from tfnmt.progress import say

MODELS: dict[str, Download] = {}
"""The known bundles by name, each with its pinned checksum."""


def find_bundle(model: str, cache: Path) -> Path | None:
    """The run folder of a bundle, by its name or its URL, fetched where it is not yet there.

    None where the model is neither.
    """
    download = MODELS.get(model) or _by_url(model)
    if download is None:
        return None
    folder = cache / download.file_name.removesuffix(ENDING)
    if not (folder / "config.yaml").is_file():
        archive = fetch(download, cache)
        unpack_bundle(archive, folder)
        say(f"{model}: kept in {folder}; {(folder / LICENCE).read_text().splitlines()[0]}")
    return folder


def _by_url(model: str) -> Download | None:
    """The file at a URL, under a name that tells the URL: others may end in the same."""
    url = urlsplit(model)
    if url.scheme not in ("http", "https"):
        return None
    stem = url.path.rpartition("/")[2].removesuffix(ENDING)
    if not stem.strip("."):
        raise UserError(f"--model={model}: no bundle; its URL ends in the name of a {ENDING} file")
    return Download(model, size=0, name=f"{stem}-{_short_hash(model)}{ENDING}")


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
