"""Models by name and by URL. test_bundles.py downloads complete models."""

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import tfnmt
from tfnmt.errors import UserError
from tfnmt.loading import registry
from tfnmt.loading.models import find_folder
from tfnmt.loading.registry import BASE_URL, DEFAULT_MODEL, MODELS, find_bundle
from tfnmt.runs.checkpoints import sha256

SHIPPED = Path(__file__).parents[3] / "models"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and the URL at which it is served."""
    folder = tmp_path / "site"
    folder.mkdir()
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def not_shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that the bundles are not part of this installation."""
    monkeypatch.setattr(registry, "_shipped", lambda model: None)
    monkeypatch.delenv(BASE_URL, raising=False)


def test_shipped_bundles_have_the_registered_checksums() -> None:
    assert {path.name.removesuffix(".tar.gz"): sha256(path) for path in SHIPPED.glob("*.gz")} == (
        MODELS
    )
    assert DEFAULT_MODEL in MODELS
    assert sum(path.stat().st_size for path in SHIPPED.glob("*.gz")) <= 25e6
    assert (SHIPPED / f"{DEFAULT_MODEL}.tar.gz").stat().st_size <= 12e6


@pytest.mark.parametrize(
    ("source", "target", "text", "translation"),
    [
        ("en", "de", "Where can I buy a ticket?", "Wo kann ich eine Fahrkarte kaufen?"),
        ("fr", "en", "Je suis fatigué. Où est la gare ?", "I'm tired. Where is the station?"),
        ("en", "es", "The train leaves in ten minutes.", "El tren sale en diez minutos."),
    ],
)
def test_default_model_translates(source: str, target: str, text: str, translation: str) -> None:
    model = tfnmt.load(DEFAULT_MODEL)
    (found,) = model.translate([text], source=source, target=target)
    assert found.text == translation


@pytest.mark.usefixtures("not_shipped")
def test_registered_model_is_downloaded_from_the_base_url(
    site: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, url = site
    name = f"{DEFAULT_MODEL}.tar.gz"
    (folder / name).write_bytes((SHIPPED / name).read_bytes())
    monkeypatch.setenv(BASE_URL, f"{url}/")
    found = find_bundle(DEFAULT_MODEL, tmp_path / "cache")
    assert found is not None
    assert (found / "model.tflite").is_file()
    (folder / name).unlink()
    assert find_bundle(DEFAULT_MODEL, tmp_path / "cache") == found  # not downloaded again


@pytest.mark.usefixtures("not_shipped")
def test_download_with_another_checksum_is_refused(
    site: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, url = site
    (folder / f"{DEFAULT_MODEL}.tar.gz").write_bytes(b"another model")
    monkeypatch.setenv(BASE_URL, url)
    with pytest.raises(UserError, match="is pinned"):
        find_bundle(DEFAULT_MODEL, tmp_path / "cache")


@pytest.mark.usefixtures("not_shipped")
def test_without_a_base_url_the_error_says_where_to_put_the_file(tmp_path: Path) -> None:
    expected = rf"^--model={DEFAULT_MODEL}: .*{BASE_URL}.*put this file into {tmp_path}$"
    with pytest.raises(UserError, match=expected):
        find_bundle(DEFAULT_MODEL, tmp_path)
    name = f"{DEFAULT_MODEL}.tar.gz"
    (tmp_path / name).write_bytes((SHIPPED / name).read_bytes())
    assert find_bundle(DEFAULT_MODEL, tmp_path) is not None


def test_name_that_is_unknown_is_answered_with_the_nearest_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=f"did you mean {DEFAULT_MODEL}\\?"):
        find_folder("tatoeba-en-de-fr")


@pytest.mark.parametrize("url", ["http://[", "http://", "https://host/.tar.gz"])
def test_invalid_url_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^--model=http"):
        find_bundle(url, tmp_path)


def test_url_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="127"):
        find_bundle("http://127.0.0.1:9/caf\udce9.tar.gz", tmp_path)
