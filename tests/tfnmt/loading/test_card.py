"""What a model tells about itself to whoever has it."""

import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tfnmt import evaluate, export
from tfnmt.loading.card import make_card, without_folders
from tfnmt.loading.models import RunModel, find_run

Call = Callable[..., None]


def card_of(model: RunModel) -> dict[str, Any]:
    return make_card(model.run, model.config, model.step)


@pytest.fixture(scope="module")
def own_run(call: Call, tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one's own text, begun with another run's weights, evaluated beside that one."""
    home = tmp_path_factory.mktemp("secret")
    for language, line in ("en", "the dog sleeps"), ("de", "der Hund schläft"):
        (home / f"my.{language}").write_text(f"{line}\n")
    run = shutil.copytree(tiny_run, home / "mine")
    text = [str(home / "my.en"), str(home / "my.de")]
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["data"] |= {"corpus": None, "train": text, "val": text}
    config["tokenizer"]["from_run"] = config["training"]["init_from"] = str(home / "before")
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    call(evaluate, f"--model={run}", f"--test={','.join(text)}", f"--against={run}")
    return run


def test_a_card_names_files_and_runs_without_their_folders(own_run: Path) -> None:
    card = card_of(find_run(own_run))
    assert "secret" in str(own_run)
    assert "secret" not in json.dumps(card)
    assert card["config"]["data"]["train"] == ["my.en", "my.de"]
    assert card["config"]["training"]["init_from"] == "before"
    evaluation = card["evaluations"][-1]
    assert evaluation["split"] == "my.en,my.de"
    assert evaluation["model"] == evaluation["against"]["model"] == "mine"


def test_a_card_is_in_utf_8_whatever_the_names_of_files_are_in(
    own_run: Path, tmp_path: Path
) -> None:
    model = find_run(shutil.copytree(own_run, tmp_path / "gr\udcfcn"))
    assert card_of(model)["run"] == "gr?n"
    config = model.config
    data = config.data.model_copy(update={"train": ("gr\udcfcn.en", "gr\udcfcn.de")})
    named = without_folders(config.model_copy(update={"data": data}))
    assert named.data.train == ("gr?n.en", "gr?n.de")


def test_neither_does_a_bundle_tell_folders(call: Call, own_run: Path, tmp_path: Path) -> None:
    path = tmp_path / "given.tar.gz"
    call(export, f"--model={own_run}", f"--bundle={path}")
    with tarfile.open(path) as archive:
        names = ("config.yaml", "model_card.json", "LICENCE.txt")
        told = [archive.extractfile(f"given/{name}").read() for name in names]
    assert not [text for text in told if b"secret" in text]
