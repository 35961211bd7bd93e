"""The folder of a web export."""

import hashlib
import json
import re
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tfnmt import export
from tfnmt.errors import UsageError, UserError
from tfnmt.litert.files import CARD, GRAPHS, checksum
from tfnmt.loading.models import find_folder
from tfnmt.loading.registry import DEFAULT_MODEL

Call = Callable[..., None]
WEB = "--format=web"


def checksums_of(folder: Path) -> dict[str, str]:
    """Return the checksums in the list of a web export."""
    return json.loads(
        re.search(r"CHECKSUMS = (\{.*\});", (folder / "files.js").read_text(), re.S)[1]
    )


def test_list_has_the_checksum_of_every_file(web_export: Path) -> None:
    found = {
        path.relative_to(web_export).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in web_export.rglob("*")
        if path.is_file() and path.name != "files.js"
    }
    assert checksums_of(web_export) == found
    assert {"index.html", "js/app.js", "model/model.tflite.gz", "LICENSE.txt"} <= found.keys()
    assert not any(path.is_symlink() for path in web_export.rglob("*"))


def test_browser_loads_at_most_12_megabytes(web_export: Path) -> None:
    sizes = {path: path.stat().st_size for path in web_export.rglob("*") if path.is_file()}
    assert sum(size for path, size in sizes.items() if "compat" not in path.name) < 12e6


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--quantization=float32"], "--quantization: fixed in an export; omit it"),
        (["--license=Ours"], "--license: fixed in an export; omit it"),
        (["--keep=2"], "--keep: not supported with --format=web; omit it"),
        (["--version=2"], "--version: not supported with --format=web; omit it"),
    ],
)
def test_flags_without_effect_are_refused(
    call: Call, tmp_path: Path, flags: list[str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        call(export, WEB, f"--model={DEFAULT_MODEL}", f"--output={tmp_path / 'web'}", *flags)


def test_folder_that_is_not_empty_is_refused(call: Call, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="not empty; choose a new folder"):
        call(export, WEB, f"--model={DEFAULT_MODEL}", f"--output={tmp_path}")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_graphs_of_another_version_are_a_user_error(
    call: Call, litertjs: Path, tmp_path: Path
) -> None:
    model = shutil.copytree(find_folder(DEFAULT_MODEL), tmp_path / "model")
    (model / GRAPHS).write_bytes((model / GRAPHS).read_bytes().replace(b"greedy", b"argmax"))
    card = json.loads((model / CARD).read_text())
    card["checksums"][GRAPHS] = checksum(model / GRAPHS)
    (model / CARD).write_text(json.dumps(card))
    with pytest.raises(UserError, match=f"{GRAPHS}: does not contain the graphs of this version"):
        call(export, WEB, f"--model={model}", f"--output={tmp_path / 'web'}")
    assert not (tmp_path / "web").exists()


def test_web_page_and_bundle_are_written_together(
    call: Call, web_export: Path, tmp_path: Path
) -> None:
    flags = (f"--output={tmp_path / 'web'}", f"--bundle={tmp_path / 'b.tar.gz'}")
    call(export, WEB, f"--model={DEFAULT_MODEL}", *flags)
    assert checksums_of(tmp_path / "web") == checksums_of(web_export)  # exports are reproducible
    with tarfile.open(tmp_path / "b.tar.gz") as archive:
        assert f"b/{GRAPHS}" in archive.getnames()


@pytest.mark.slow
def test_run_is_converted_to_int8(
    call: Call, litertjs: Path, tiny_run: Path, tmp_path: Path
) -> None:
    call(export, WEB, f"--model={tiny_run}", f"--output={tmp_path / 'web'}")
    card = json.loads((tmp_path / "web/model/model_card.json").read_text())
    assert card["quantization"] == "int8"
    assert card["targets"] == []
