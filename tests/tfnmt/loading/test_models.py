import shutil
from pathlib import Path

import pytest

from tfnmt.errors import UserError
from tfnmt.loading.bundles import write_bundle
from tfnmt.loading.models import find_model, find_run


def test_weights_that_a_training_has_replaced_meanwhile_are_told(
    tiny_run: Path, tmp_path: Path
) -> None:
    model = find_run(shutil.copytree(tiny_run, tmp_path / "run"))
    shutil.rmtree(model.weights.parent)
    with pytest.raises(UserError, match="newer ones: try again"):
        model.load_translator()


def test_weights_that_are_not_what_was_saved_are_neither_used_nor_packed(
    tiny_run: Path, tmp_path: Path
) -> None:
    model = find_run(shutil.copytree(tiny_run, tmp_path / "run"))
    content = bytearray(model.weights.read_bytes())
    content[-4] ^= 0x40  # the file still loads
    model.weights.write_bytes(content)
    with pytest.raises(
        UserError, match=rf"{model.weights}: damaged, not what checksums\.json says"
    ):
        model.load_translator()
    with pytest.raises(UserError, match=rf"{model.weights.parent}: a file in it is damaged"):
        write_bundle(model.run, {}, tmp_path / "bundle.tar.gz")
    assert not (tmp_path / "bundle.tar.gz").exists()


def test_a_run_without_its_tokenizer_is_told(tiny_run: Path, tmp_path: Path) -> None:
    model = find_run(shutil.copytree(tiny_run, tmp_path / "run"))
    model.run.tokenizer_path.unlink()
    with pytest.raises(UserError, match=r"tokenizer\.model: No such file.*as a whole"):
        model.load_translator()


@pytest.mark.parametrize("part", ["saved_model.pb", "variables/variables.index"])
def test_an_export_that_is_damaged_is_told(tiny_export: Path, tmp_path: Path, part: str) -> None:
    folder = shutil.copytree(tiny_export, tmp_path / "export")
    (file,) = folder.glob(f"*/{part}")
    file.write_bytes(file.read_bytes()[:30])
    with pytest.raises(UserError, match=r"cannot be loaded \(.+\); export the run again"):
        find_model(str(folder), {}).load()


def test_a_file_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "bundle.tar.gz").touch()
    with pytest.raises(UserError, match=r"bundle\.tar\.gz: a file, where a folder is expected"):
        find_model(str(tmp_path / "bundle.tar.gz"), {})
