import shutil
from pathlib import Path

import pytest

from tfnmt.errors import UserError
from tfnmt.loading.bundles import write_bundle
from tfnmt.loading.models import find_model, find_run


def test_weights_replaced_by_training_are_reported(tiny_run: Path, tmp_path: Path) -> None:
    model = find_run(shutil.copytree(tiny_run, tmp_path / "run"))
    shutil.rmtree(model.weights.parent)
    with pytest.raises(UserError, match=f"^{model.weights}: replaced"):
        model.load_translator()


def test_damaged_weights_are_neither_loaded_nor_bundled(tiny_run: Path, tmp_path: Path) -> None:
    model = find_run(shutil.copytree(tiny_run, tmp_path / "run"))
    content = bytearray(model.weights.read_bytes())
    content[-4] ^= 0x40  # the file still loads
    model.weights.write_bytes(content)
    with pytest.raises(UserError, match=rf"^{model.weights}: damaged.*checksums\.json"):
        model.load_translator()
    with pytest.raises(UserError, match=rf"^{model.weights.parent}: .*damaged"):
        write_bundle(model.run, {}, tmp_path / "bundle.tar.gz")
    assert not (tmp_path / "bundle.tar.gz").exists()


def test_missing_tokenizer_is_reported(tiny_run: Path, tmp_path: Path) -> None:
    model = find_run(shutil.copytree(tiny_run, tmp_path / "run"))
    model.run.tokenizer_path.unlink()
    with pytest.raises(UserError, match=r"tokenizer\.model: No such file"):
        model.load_translator()


@pytest.mark.parametrize("part", ["saved_model.pb", "variables/variables.index"])
def test_damaged_export_is_reported(tiny_export: Path, tmp_path: Path, part: str) -> None:
    folder = shutil.copytree(tiny_export, tmp_path / "export")
    (file,) = folder.glob(f"*/{part}")
    file.write_bytes(file.read_bytes()[:30])
    with pytest.raises(UserError, match=r"cannot be loaded \(.+\); export the run again"):
        find_model(str(folder), {}).load()


def test_file_as_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bundle.tar.gz").touch()
    with pytest.raises(UserError, match=r"^--model=.*bundle\.tar\.gz: a file"):
        find_model(str(tmp_path / "bundle.tar.gz"), {})


def test_export_of_an_earlier_version_is_reported(tiny_export: Path, tmp_path: Path) -> None:
    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def align(text: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"source_pieces": text}

    folder = tmp_path / "export" / "1"
    tf.saved_model.save(tf.Module(), str(folder), signatures={"align": align})
    shutil.copytree(tiny_export / "1" / "assets.extra", folder / "assets.extra")
    with pytest.raises(UserError, match=rf"^{folder}: .*earlier version"):
        find_model(str(folder.parent), {}).load()
