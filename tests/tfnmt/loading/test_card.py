"""The model card."""

import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tfnmt import evaluate, export
from tfnmt.loading.card import make_card, strip_folders
from tfnmt.loading.models import RunModel, find_run

Call = Callable[..., None]


def make_card_of(model: RunModel) -> dict[str, Any]:
    return make_card(model.run, model.config, model.step)


@pytest.fixture(scope="module")
def custom_run(call: Call, tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on custom data, initialized from another run, and compared with a run."""
    folder = tmp_path_factory.mktemp("secret")
    for language, line in ("en", "the dog sleeps"), ("de", "der Hund schläft"):
        (folder / f"my.{language}").write_text(f"{line}\n")
    run = shutil.copytree(tiny_run, folder / "mine")
    files = [str(folder / "my.en"), str(folder / "my.de")]
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["data"] |= {"corpus": None, "train": files, "val": files}
    config["tokenizer"]["from_run"] = config["training"]["init_from"] = str(folder / "before")
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    call(evaluate, f"--model={run}", f"--test={','.join(files)}", f"--against={run}")
    return run


def test_card_names_files_and_runs_without_folders(custom_run: Path) -> None:
    card = make_card_of(find_run(custom_run))
    assert "secret" in str(custom_run)
    assert "secret" not in json.dumps(card)
    assert card["config"]["data"]["train"] == ["my.en", "my.de"]
    assert card["config"]["training"]["init_from"] == "before"
    evaluation = card["evaluations"][-1]
    assert evaluation["split"] == "my.en,my.de"
    assert evaluation["model"] == evaluation["against"]["model"] == "mine"


def test_card_is_utf8_for_file_names_that_are_not(custom_run: Path, tmp_path: Path) -> None:
    model = find_run(shutil.copytree(custom_run, tmp_path / "gr\udcfcn"))
    assert make_card_of(model)["run"] == "gr?n"
    config = model.config
    data = config.data.model_copy(update={"train": ("gr\udcfcn.en", "gr\udcfcn.de")})
    stripped = strip_folders(config.model_copy(update={"data": data}))
    assert stripped.data.train == ("gr?n.en", "gr?n.de")


def test_bundle_contains_no_folder_names(call: Call, custom_run: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.tar.gz"
    call(export, f"--model={custom_run}", f"--bundle={path}")
    with tarfile.open(path) as archive:
        names = ("config.yaml", "model_card.json", "LICENSE.txt")
        contents = [archive.extractfile(f"mine/{name}").read() for name in names]
    assert not [content for content in contents if b"secret" in content]
