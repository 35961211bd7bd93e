"""A bundle: a run that can be given away, as one archive, and got back by a name or a URL.

In the archive, below a folder of the bundle's name:

config.yaml  tokenizer.model  averaged/<step>/   what translating needs: a run folder
model_card.json                                  languages, limits, evaluations, versions
LICENCE.txt                                      the terms of the training text and its sources
"""

import gzip
import io
import json
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from tfnmt.config import dump_config
from tfnmt.errors import UserError
from tfnmt.loading.card import without_folders
from tfnmt.runs.checkpoints import snapshot_is_whole
from tfnmt.runs.run import Run
from tfnmt.runtime.files import written_aside

ENDING = ".tar.gz"
CARD = "model_card.json"
LICENCE = "LICENCE.txt"
NEEDED = ("config.yaml", "tokenizer.model", LICENCE)


def write_bundle(run: Run, card: dict[str, Any], path: Path) -> None:
    """Packs what a run translates with; the same run and card give the same bytes."""
    weights = run.weights()
    if not snapshot_is_whole(weights.parent):
        raise UserError(f"{weights.parent}: a file in it is damaged or missing; copy the run anew")
    files = {
        "config.yaml": dump_config(without_folders(run.config())).encode(),
        "tokenizer.model": run.tokenizer_model(),
        CARD: (json.dumps(card, indent=1, ensure_ascii=False) + "\n").encode(),
        LICENCE: _licence(card).encode(),
    }
    for file in sorted(weights.parent.iterdir()):
        files[f"averaged/{weights.parent.name}/{file.name}"] = file.read_bytes()
    folder = path.name.removesuffix(ENDING)
    with (
        written_aside(path) as aside,
        aside.open("wb") as out,
        gzip.GzipFile("", "wb", 6, out, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for name, content in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}")  # no owner, and 1970
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def unpack_bundle(archive: Path, folder: Path) -> None:
    """Unpacks a bundle aside and gives it its name when it is whole."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        try:
            with tarfile.open(archive) as members:
                members.extractall(scratch, filter="data")  # which no path leaves
        except (tarfile.TarError, OSError, EOFError) as error:
            raise UserError(f"{archive}: not a bundle ({error}); remove it") from error
        found = list(Path(scratch).iterdir())
        if len(found) != 1 or not all((found[0] / name).is_file() for name in NEEDED):
            raise UserError(f"{archive}: not a bundle (no run folder in it); remove it")
        weights = Run(found[0]).weights()
        if not snapshot_is_whole(weights.parent):
            raise UserError(f"{archive}: its weights are damaged; remove it and fetch it again")
        shutil.move(found[0], folder)


def _licence(card: dict[str, Any]) -> str:
    data = card["training_data"]
    return (
        f"Trained on {data['corpus']}: {data['licence']}\n\n"
        f"{card['source']} to {card['target']}, run {card['run']}, step {card['step']}, made by "
        f"tfnmt {card['versions']['tfnmt']}.\nThe terms of the text above hold for what is made "
        "with these weights as far as the law where you are says so.\n"
    )
