"""A bundle: a run that can be shared, as one archive, and loaded by a name or a URL.

The archive contains one folder with the name of the bundle:

config.yaml  tokenizer.model  averaged/<step>/   the files needed to translate: a run folder
model_card.json                                  languages, limits, evaluations, versions
LICENSE.txt                                      terms and source of the training data
"""

import errno
import gzip
import io
import json
import tarfile
from pathlib import Path
from typing import Any

from tfnmt.config import dump_config
from tfnmt.data.preparation.tokenizer import Tokenizer
from tfnmt.errors import UserError
from tfnmt.loading.card import strip_folders
from tfnmt.runs.checkpoints import check_tokenizer, is_complete
from tfnmt.runs.run import Run
from tfnmt.runtime.files import atomic_path, remove

SUFFIX = ".tar.gz"
CARD = "model_card.json"
LICENSE = "LICENSE.txt"
REQUIRED = ("config.yaml", "tokenizer.model", LICENSE)


def write_bundle(run: Run, card: dict[str, Any], path: Path) -> None:
    """Write a bundle. The same run and card give the same bytes.

    Args:
        run: The run.
        card: The model card, from `make_card`.
        path: The archive, named `<bundle>.tar.gz`.

    Raises:
        UserError: The weights are damaged, or the archive could not be written.
    """
    weights = run.weights()
    if not is_complete(weights.parent):
        raise UserError(f"{weights.parent}: contains a damaged or missing file; copy the run again")
    check_tokenizer(weights.parent)
    files = {
        "config.yaml": dump_config(strip_folders(run.config())).encode(),
        "tokenizer.model": run.tokenizer_model(),
        CARD: (json.dumps(card, indent=1, ensure_ascii=False) + "\n").encode(),
        LICENSE: _license_text(card).encode(),
    }
    for file in sorted(weights.parent.iterdir()):
        files[f"averaged/{weights.parent.name}/{file.name}"] = file.read_bytes()
    folder = path.name.removesuffix(SUFFIX)
    with (
        atomic_path(path) as temporary,
        temporary.open("wb") as out,
        gzip.GzipFile("", "wb", 6, out, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as archive,
    ):
        for name, content in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}")  # without owner and time
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def unpack_bundle(archive: Path, folder: Path) -> None:
    """Unpack a bundle in a temporary folder, check it, and move it to `folder`.

    Args:
        archive: The bundle.
        folder: The new run folder. Its parent must exist.

    Raises:
        UserError: The archive is not a bundle, or it is damaged.
    """
    with atomic_path(folder) as temporary:
        unpacked = temporary.with_suffix(".unpacked.tmp")
        try:
            unpacked.mkdir()
            _extract(archive, unpacked)
            _check(archive, unpacked).rename(temporary)
        finally:
            remove(unpacked)


def _extract(archive: Path, folder: Path) -> None:
    """Extract an archive into a folder, and verify the checksum at its end."""
    try:
        with gzip.open(archive) as content, tarfile.open(fileobj=content, mode="r:") as members:
            members.extractall(folder, filter="data")  # no path leaves the folder
            while content.read(2**20):  # the checksum of gzip follows the last member
                pass
    except Exception as error:  # tarfile and zlib raise many types
        if getattr(error, "errno", None) == errno.ENOSPC:
            raise
        reason = str(error) or type(error).__name__
        raise UserError(f"{archive}: not a bundle, or damaged ({reason}); remove it") from error


def _check(archive: Path, folder: Path) -> Path:
    """Return the run folder in an extracted archive after checking its files."""
    folders = list(folder.iterdir())
    if len(folders) != 1 or not all((folders[0] / name).is_file() for name in REQUIRED):
        raise UserError(f"{archive}: not a bundle (it contains no run folder); remove it")
    try:
        run = Run(folders[0])
        weights = run.weights()
        if not is_complete(weights.parent):
            raise UserError("the weights are damaged")
        check_tokenizer(weights.parent)
        Tokenizer(run.tokenizer_model())
    except UserError as error:
        raise UserError(
            f"{archive}: not a bundle, or damaged ({error}); remove it and download it again"
        ) from error
    return folders[0]


def license_title(folder: Path) -> str:
    """Return the first line of the license in an unpacked bundle; empty if it has none."""
    text = (folder / LICENSE).read_text(encoding="utf-8", errors="replace")
    return text.strip().partition("\n")[0]


def _license_text(card: dict[str, Any]) -> str:
    data = card["training_data"]
    return (
        f"Trained on {data['corpus']}: {data['license']}\n\n"
        f"{card['source']} to {card['target']}, run {card['run']}, step {card['step']}, "
        f"trained with tfnmt {card['versions']['tfnmt']}.\n"
        "Depending on the law of your country, the terms above may also apply to these weights and "
        "to their translations.\n"
    )
