import json
import shutil
from pathlib import Path

import pytest

from tfnmt.errors import UserError
from tfnmt.loading.bundles import run_files
from tfnmt.loading.models import CARD, find_model, find_run
from tfnmt.runs.run import Run


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
        run_files(model.run, {})
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


@pytest.mark.parametrize("content", ["", "[]", "{}", "[" * 99999])
def test_export_without_a_card_is_reported(tmp_path: Path, content: str) -> None:
    path = tmp_path / "1" / CARD
    path.parent.mkdir(parents=True)
    path.write_text(content)
    (tmp_path / "1" / "saved_model.pb").touch()
    with pytest.raises(UserError, match=rf"^{path}: .*invalid model card"):
        find_model(str(tmp_path), {})


@pytest.mark.parametrize(
    "change",
    [
        {"config": None},
        {"config": {"model": 1}},
        {"step": "x"},
        {"step": float("inf")},
        {"targets": None},
        {"targets": [1]},
        {"training_data": {"corpus": "toy"}},
        {"versions": {"tfnmt": 1}},
    ],
)
def test_invalid_card_is_reported(
    tiny_export: Path, tmp_path: Path, change: dict[str, object]
) -> None:
    folder = Path(shutil.copytree(tiny_export, tmp_path / "export"))
    path = folder / "1" / CARD
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UserError, match=rf"^{path}: .*invalid model card"):
        find_model(str(folder), {})


def test_file_as_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.h5").touch()
    with pytest.raises(UserError, match=r"^--model=.*model\.h5: a file"):
        find_model(str(tmp_path / "model.h5"), {})


def test_folder_without_a_run_or_an_export_is_reported(tmp_path: Path) -> None:
    (tmp_path / "models" / "en_de" / ".1.tmp").mkdir(parents=True)
    for folder in (tmp_path / "models", tmp_path / "models" / "en_de"):
        with pytest.raises(UserError, match=rf"^{folder}: neither a run .* nor an export "):
            find_model(str(folder), {})


def test_weights_id_differs_between_weights(tiny_run: Path, tmp_path: Path) -> None:
    model = find_run(Path(shutil.copytree(tiny_run, tmp_path / "run")))
    assert model.weights_id == find_run(tiny_run).weights_id
    shutil.rmtree(model.run.averaged.folder)
    other = find_run(model.run.path)
    assert None is not other.weights_id != model.weights_id
    (other.weights.parent / "checksums.json").write_text("[]")
    assert other.weights_id is None


def test_origin_names_the_checkpoint_and_the_averaged_steps(tiny_run: Path, tmp_path: Path) -> None:
    run = Run(Path(shutil.copytree(tiny_run, tmp_path / "run")))
    assert find_run(run.path).origin == {"weights": "averaged/00000012", "averaged_steps": [6, 12]}
    shutil.rmtree(run.averaged.folder)
    shutil.rmtree(run.best.folder, ignore_errors=True)
    assert find_run(run.path).origin == {"weights": "checkpoints/00000012", "averaged_steps": None}


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
