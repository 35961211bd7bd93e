"""LiteRT.js from a folder, and the failures of its download."""

import shutil
from pathlib import Path

import pytest

from tfnmt.errors import UserError
from tfnmt.exporting import litertjs as module
from tfnmt.exporting.litertjs import CHECKSUMS, find_litertjs


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CACHED", tmp_path / "cache" / "2.5.3")


def test_package_folder_and_its_files_are_accepted(litertjs: Path, tmp_path: Path) -> None:
    shutil.copytree(litertjs, tmp_path / "package" / "wasm")
    assert find_litertjs(tmp_path / "package") == tmp_path / "package" / "wasm"
    assert find_litertjs(tmp_path / "package" / "wasm") == tmp_path / "package" / "wasm"
    assert find_litertjs(None) == litertjs


@pytest.mark.parametrize("change", [Path.unlink, lambda path: path.write_bytes(b"other")])
def test_missing_or_other_file_is_a_user_error(litertjs: Path, tmp_path: Path, change) -> None:
    folder = shutil.copytree(litertjs, tmp_path / "package")
    name = next(iter(CHECKSUMS))
    change(folder / name)
    with pytest.raises(UserError) as caught:
        find_litertjs(folder)
    assert str(caught.value) == (
        f"--litertjs={folder}: {name}: missing, damaged or of another version; "
        "unpack @litertjs/core@2.5.3 and give its folder"
    )


def test_download_without_npm_is_a_user_error(
    empty_cache: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(
        UserError, match=r"npm is not installed; install it, or unpack .*--litertjs"
    ):
        find_litertjs(None)


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_failed_download_is_a_user_error_and_leaves_nothing(
    empty_cache: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9")
    monkeypatch.setenv("npm_config_fetch_retries", "0")
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm"))
    with pytest.raises(UserError, match=r"npm cannot download .* \(.*ECONNREFUSED.*\); "):
        find_litertjs(None)
    assert not module.CACHED.exists()
