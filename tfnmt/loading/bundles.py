"""A bundle: a model that can be shared, as one archive, and loaded by its name, path or URL.

The archive contains one folder with the name of the bundle. The folder is a run without the files
that only training needs:

config.yaml  tokenizer.model  averaged/<step>/

or a version of a LiteRT export:

model.tflite  tokenizer.model

Both have two more files:

model_card.json   languages, limits, evaluations, versions
LICENSE.txt       terms and source of the training data
"""

import errno
import gzip
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, cast

from tfnmt.config import dump_config
from tfnmt.data.corpora.archives import LimitedReader, unpacked_limit
from tfnmt.data.preparation.tokenizer import Tokenizer
from tfnmt.errors import UserError
from tfnmt.litert.files import CARD, GRAPHS, TOKENIZER, check_files, read_card
from tfnmt.loading import SUFFIX
from tfnmt.loading.card import strip_folders
from tfnmt.runs.checkpoints import (
    CHECKSUMS,
    WEIGHTS,
    check_tokenizer,
    format_checksums,
    is_complete,
)
from tfnmt.runs.run import Run
from tfnmt.runtime.files import atomic_path, format_json, remove

MAX_RATIO = 10
"""Maximum size of an unpacked bundle divided by that of its archive. Weights hardly compress."""

LICENSE = "LICENSE.txt"
REQUIRED = ("config.yaml", TOKENIZER, LICENSE)


def run_files(run: Run, card: dict[str, Any], half_precision: bool = False) -> dict[str, bytes]:
    """Return the files of a bundle of a run, by name.

    Args:
        run: The run.
        card: The model card, from `make_card`.
        half_precision: Whether the weights are rounded to float16. They load as float32.

    Raises:
        UserError: The weights are damaged.
    """
    checkpoint = run.weights().parent
    if not is_complete(checkpoint):
        raise UserError(f"{checkpoint}: contains a damaged or missing file; copy the run again")
    check_tokenizer(checkpoint)
    weights = {file.name: file.read_bytes() for file in sorted(checkpoint.iterdir())}
    if half_precision:
        weights[WEIGHTS] = _round_to_float16(weights[WEIGHTS])
        del weights[CHECKSUMS]
        weights[CHECKSUMS] = format_checksums(weights)
    return {
        "config.yaml": dump_config(strip_folders(run.config())).encode(),
        TOKENIZER: run.tokenizer_model(),
        CARD: format_json(card),
        LICENSE: _license_text(card).encode(),
        **{f"averaged/{checkpoint.name}/{name}": content for name, content in weights.items()},
    }


def litert_files(folder: Path) -> dict[str, bytes]:
    """Return the files of a bundle of a LiteRT export, by name.

    Args:
        folder: A version of the export.

    Raises:
        UserError: A file is missing or damaged.
    """
    card = read_card(folder)
    check_files(folder, card)
    files = {name: (folder / name).read_bytes() for name in (GRAPHS, TOKENIZER, CARD)}
    return files | {LICENSE: _license_text(card).encode()}


def write_bundle(files: Mapping[str, bytes], path: Path) -> None:
    """Write a bundle. The same files give the same bytes.

    Args:
        files: The files by name, from `run_files` or `litert_files`.
        path: The archive, named `<bundle>.tar.gz`.

    Raises:
        UserError: The archive could not be written.
    """
    folder = path.name.removesuffix(SUFFIX)
    with (
        atomic_path(path) as temporary,
        temporary.open("wb") as out,
        gzip.GzipFile("", "wb", 9, out, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as archive,
    ):
        for name, content in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}")  # without owner and time
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def _round_to_float16(content: bytes) -> bytes:
    """Return a file of weights whose numbers are float16."""
    import h5py

    rounded = io.BytesIO()
    with h5py.File(io.BytesIO(content)) as source, h5py.File(rounded, "w") as copy:

        def convert(name: str, item: Any) -> None:
            is_array = isinstance(item, h5py.Dataset)
            new = (
                copy.create_dataset(name, data=item[()].astype("float16"))
                if is_array
                else (copy.require_group(name))
            )
            new.attrs.update(item.attrs)

        copy.attrs.update(source.attrs)
        source.visititems(convert)
    return rounded.getvalue()


def unpack_bundle(archive: Path, folder: Path) -> None:
    """Unpack a bundle in a temporary folder, check it, and move it to `folder`.

    Args:
        archive: The bundle.
        folder: The new folder of the model. Its parent must exist.

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
        with gzip.open(archive) as stream:
            content = LimitedReader(stream, unpacked_limit(archive, MAX_RATIO))
            with tarfile.open(fileobj=cast(IO[bytes], content), mode="r|") as members:
                members.extractall(folder, filter=_only_files)
            while content.read(2**20):  # the checksum of gzip follows the last member
                pass
    except Exception as error:  # tarfile and zlib raise many types
        if getattr(error, "errno", None) == errno.ENOSPC:
            raise
        reason = str(error) or type(error).__name__
        raise UserError(f"{archive}: not a bundle, or damaged ({reason}); remove it") from error


def _only_files(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo:
    """Accept files and folders that stay in the folder.

    Links are refused: those that the `data` filter accepts can lead out of the folder in versions
    of Python before 3.11.13, 3.12.11 and 3.13.4 (CVE-2025-4517).
    """
    if not (member.isreg() or member.isdir()) or member.issparse():
        raise ValueError(f"{member.name}: neither a file nor a folder")
    return tarfile.data_filter(member, folder)


def _check(archive: Path, folder: Path) -> Path:
    """Return the folder of the model in an extracted archive after checking its files."""
    folders = list(folder.iterdir())
    if len(folders) != 1:
        raise UserError(f"{archive}: not a bundle (it contains no model); remove it")
    (found,) = folders
    is_litert = (found / GRAPHS).is_file()
    required = (GRAPHS, TOKENIZER, CARD, LICENSE) if is_litert else REQUIRED
    if not all((found / name).is_file() for name in required):
        raise UserError(f"{archive}: not a bundle (it contains no model); remove it")
    try:
        if is_litert:
            check_files(found, read_card(found))
            Tokenizer((found / TOKENIZER).read_bytes())
        else:
            _check_run(Run(found))
    except UserError as error:
        raise UserError(
            f"{archive}: not a bundle, or damaged ({error}); remove it and download it again"
        ) from error
    return found


def _check_run(run: Run) -> None:
    weights = run.weights()
    if not is_complete(weights.parent):
        raise UserError("the weights are damaged")
    check_tokenizer(weights.parent)
    Tokenizer(run.tokenizer_model())


def license_title(folder: Path) -> str:
    """Return the first line of the license in an unpacked bundle; empty if it has none."""
    text = (folder / LICENSE).read_text(encoding="utf-8", errors="replace")
    return text.strip().partition("\n")[0]


def _license_text(card: dict[str, Any]) -> str:
    data = card["training_data"]
    directions = card.get("directions") or [f"{card['source']}-{card['target']}"]
    return (
        f"Trained on {data['corpus']}: {data['license']}\n\n"
        f"{', '.join(directions)}, run {card['run']}, step {card['step']}, "
        f"trained with tfnmt {card['versions']['tfnmt']}.\n"
        "Depending on the law of your country, the terms above may also apply to these weights and "
        "to their translations.\n"
    )
