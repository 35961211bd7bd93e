"""The export command: what it refuses, and whose terms it passes on."""

import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tfnmt import export
from tfnmt.errors import UsageError

Call = Callable[..., None]
CTRANSLATE2 = "--format=ctranslate2"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "--model, and --output or --bundle: needed"),
        (["--model=run"], "--model, and --output or --bundle: needed"),
        (["--model=run", "--output=o", "more"], "--model, and --output or --bundle: needed"),
        (["--model=run", "--output=o", "--licence=\udce9"], r"'\\udce9': not UTF-8"),
        (["--model=run", f"--output={__file__}"], "test_export.py: a file; name a folder"),
        (["--model=run", "--bundle=b.zip"], r"--bundle=b\.zip: a bundle is a \.tar\.gz"),
        (["--model=run", "--output=o", "--quantization=int8"], "--quantization: not with --format"),
        (["--model=run", "--output=o", CTRANSLATE2, "--version=2"], "--version: not with --format"),
        (["--model=run", "--output=o", CTRANSLATE2, "--keep=2"], "--keep: not with --format"),
    ],
)
def test_what_is_contradictory_is_said_at_once(call: Call, flags: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call(export, *flags)


def test_the_licence_that_is_given_is_the_bundles(
    call: Call, tiny_run: Path, tmp_path: Path
) -> None:
    bundle = tmp_path / "b.tar.gz"
    call(export, f"--model={tiny_run}", f"--bundle={bundle}", "--licence=Ours; ask before you sell")
    with tarfile.open(bundle) as archive:
        licence = archive.extractfile("b/LICENCE.txt").read().decode()
        card = json.load(archive.extractfile("b/model_card.json"))
    assert "Ours; ask before you sell" in licence
    assert card["training_data"]["licence"] == "Ours; ask before you sell"
