"""The flags of the export command."""

import json
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.syscalls import Disk, record
from tfnmt import export
from tfnmt.errors import UsageError, UserError
from tfnmt.runtime.files import exclusive

ROOT = Path(__file__).parents[2]

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
        (["--model=run", "--output=o", "--litertjs=f"], "--litertjs: .*=saved_model"),
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


@pytest.mark.parametrize(
    ("format", "file", "message"),
    [
        ("litert", "saved_model.pb", "version 7 is a SavedModel"),
        ("saved_model", "model.tflite", "version 7 is a LiteRT export"),
    ],
)
def test_export_refuses_a_folder_with_versions_of_another_format(
    call: Call, tiny_run: Path, tmp_path: Path, format: str, file: str, message: str
) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / file).write_text("")
    with pytest.raises(UsageError, match=rf"^--output={tmp_path}: {message}; choose a new folder"):
        call(export, f"--model={tiny_run}", f"--output={tmp_path}", f"--format={format}")


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


# --- Other exports to the same place --------------------------------------------------------------


@pytest.fixture
def no_export(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if the model is loaded."""

    def fail(*_: object) -> None:
        raise AssertionError("the model was loaded")

    monkeypatch.setattr("tfnmt.loading.models.RunModel.load_translator", fail)


@pytest.mark.parametrize(
    ("flags", "lock"),
    [
        (["--output=OUT"], "out/.export.lock"),
        (["--output=OUT", CTRANSLATE2], ".out.lock"),
        (["--bundle=OUT.tar.gz"], ".out.tar.gz.lock"),
    ],
)
def test_second_export_to_the_same_place_is_refused_at_once(
    call: Call, tiny_run: Path, tmp_path: Path, no_export: None, flags: list[str], lock: str
) -> None:
    flags = [flag.replace("OUT", str(tmp_path / "out")) for flag in flags]
    with (
        exclusive(tmp_path / lock, "first", "busy"),
        pytest.raises(UserError, match=rf"^{flags[0]}: another process exports"),
    ):
        call(export, f"--model={tiny_run}", *flags)


def test_export_removes_what_a_killed_export_left(
    call: Call, tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (".1~7.tmp", ".1~7.moved.tmp", ".3~7.removed.tmp", "2", ".partial"):
        (tmp_path / name / "variables").mkdir(parents=True)
    monkeypatch.setattr("tfnmt.export._publish", lambda *_: None)
    call(export, f"--model={tiny_run}", f"--output={tmp_path}")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".partial", "2"]


@pytest.mark.parametrize("flags", [[], [CTRANSLATE2]])
def test_export_refuses_a_name_that_is_too_long(
    call: Call, tiny_run: Path, tmp_path: Path, no_export: None, flags: list[str]
) -> None:
    output = tmp_path / ("x" * 300)
    with pytest.raises(UserError, match=rf"{output}: File name too long"):
        call(export, f"--model={tiny_run}", f"--output={output}", *flags)
    with pytest.raises(UserError, match=rf"{output}: File name too long"):
        call(export, f"--model={output}", f"--output={tmp_path}")


@pytest.mark.slow
def test_terminated_export_leaves_nothing(tiny_run: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tfnmt.export", f"--model={tiny_run}", f"--output={tmp_path}"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        while not list(tmp_path.glob(".1~*.moved.tmp")):  # during the parity check
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        errors = process.communicate(timeout=100)[1]
    assert process.returncode == 128 + signal.SIGTERM
    assert "Traceback" not in errors
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_version_is_synced_before_it_appears(tiny_run: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    command = [sys.executable, "-m", "tfnmt.export", f"--model={tiny_run}", f"--output={output}"]
    disk = Disk()
    for call in record(command, tmp_path):
        disk.apply(call)
    assert disk.nodes[str(output / "1" / "saved_model.pb")].synced
    assert not disk.unsynced(str(output / "1"))
    assert disk.nodes[str(tmp_path)].synced  # has the name of the model base path
