"""The flags of the export command."""

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
        ([], "--model, and --output or --bundle: required"),
        (["--model=run"], "--model, and --output or --bundle: required"),
        (["--model=run", "--output=o", "more"], "--model, and --output or --bundle: required"),
        (["--model=run", "--output=o", "--license=\udce9"], r"'\\udce9': not UTF-8"),
        (["--model=run", f"--output={__file__}"], "--output=.*test_export.py: a file;"),
        (["--model=run", "--bundle=b.zip"], r"--bundle=b\.zip: .*\.tar\.gz"),
        (["--model=run", "--output=o", "--quantization=int8"], "--quantization: .*=saved_model"),
        (["--model=run", "--output=o", CTRANSLATE2, "--version=2"], "--version: .*=ctranslate2"),
        (["--model=run", "--output=o", CTRANSLATE2, "--keep=2"], "--keep: .*=ctranslate2"),
        (["--model=run", "--bundle=b.tar.gz", "--version=2"], "--version: only for --output"),
        (["--model=run", "--bundle=b.tar.gz", CTRANSLATE2], "--format: only for --output"),
    ],
)
def test_export_refuses_contradictory_flags(call: Call, flags: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call(export, *flags)


@pytest.mark.parametrize("name", [".", "checkpoints", "averaged", "best", "logs"])
def test_export_refuses_a_folder_of_the_run(
    call: Call, tiny_run: Path, tmp_path: Path, name: str
) -> None:
    """A version in checkpoints/ would be a checkpoint, and one in the run would hide the run."""
    (tmp_path / "link").symlink_to(tiny_run)
    output = tmp_path / "link" / name
    with pytest.raises(UsageError, match=rf"^--output={output}: a folder of the run"):
        call(export, f"--model={tiny_run}", f"--output={output}")


def test_export_refuses_one_path_for_both_outputs(
    call: Call, tiny_run: Path, tmp_path: Path
) -> None:
    path = tmp_path / "x.tar.gz"
    with pytest.raises(UsageError, match=rf"^--bundle={path}: is the folder of --output"):
        call(export, f"--model={tiny_run}", f"--output={path}", f"--bundle={path}")
    assert not path.exists()


def test_export_license_is_that_of_the_bundle(call: Call, tiny_run: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "b.tar.gz"
    call(export, f"--model={tiny_run}", f"--bundle={bundle}", "--license=Ours; ask before you sell")
    with tarfile.open(bundle) as archive:
        text = archive.extractfile("b/LICENSE.txt").read().decode()
        card = json.load(archive.extractfile("b/model_card.json"))
    assert "Ours; ask before you sell" in text
    assert card["training_data"]["license"] == "Ours; ask before you sell"
