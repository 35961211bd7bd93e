"""Bundles: written, served by an HTTP server, and loaded by their URL."""

import functools
import http.server
import io
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tfnmt import export, translate
from tfnmt.data.corpora.downloads import Download
from tfnmt.errors import UserError
from tfnmt.loading import registry
from tfnmt.loading.bundles import unpack_bundle
from tfnmt.loading.registry import find_bundle

Call = Callable[..., None]


@pytest.fixture(scope="module")
def bundle(call: Call, tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("web") / "toy-en-de.tar.gz"
    call(export, f"--model={tiny_run}", f"--bundle={path}")
    return path


@pytest.fixture(scope="module")
def site(bundle: Path) -> Iterator[str]:
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(bundle.parent))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_bundle_at_a_url_translates_like_its_run(
    call: Call,
    tiny_run: Path,
    site: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("tfnmt.loading.models.base_folder", lambda: tmp_path)
    call(translate, f"--model={tiny_run}", "the dog sleeps")
    expected = capsys.readouterr().out
    for _ in range(2):  # first downloaded, then found in the cache
        call(translate, f"--model={site}/toy-en-de.tar.gz", "the dog sleeps")
        assert capsys.readouterr().out == expected
    (folder,) = (tmp_path / ".cache" / "models").glob("toy-en-de-*[!z]")
    assert sorted(path.name for path in folder.iterdir()) == [
        "LICENSE.txt",
        "averaged",
        "config.yaml",
        "model_card.json",
        "tokenizer.model",
    ]
    assert (folder / "LICENSE.txt").read_text().startswith("Trained on toy: synthetic text")


def test_urls_with_the_same_file_name_are_different_models(
    bundle: Path, site: str, tmp_path: Path
) -> None:
    other = bundle.parent / "v2" / bundle.name
    other.parent.mkdir()
    other.write_bytes(bundle.read_bytes())
    one, two = (find_bundle(f"{site}{path}/{bundle.name}", tmp_path) for path in ("", "/v2"))
    assert one is not None
    assert two is not None
    assert one != two


def test_failed_download_names_the_file_to_put_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"by hand: {tmp_path}/x-\w+\.tar\.gz$") as caught:
        find_bundle("http://127.0.0.1:9/x.tar.gz", tmp_path)
    assert "--mirror" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/", "http://127.0.0.1:9/...tar.gz"])
def test_url_without_a_file_name_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"^--model={url}: "):
        find_bundle(url, tmp_path)


def test_registered_bundle_must_match_its_checksum(
    bundle: Path, site: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{site}/{bundle.name}"
    monkeypatch.setitem(registry.MODELS, "toy", Download(url, 0, f"sha256:{'0' * 64}"))
    with pytest.raises(UserError, match="is pinned"):
        find_bundle("toy", tmp_path)
    monkeypatch.setitem(registry.MODELS, "toy", Download(url, 0))
    assert find_bundle("toy", tmp_path) == tmp_path / "toy-en-de"
    assert find_bundle("no such name", tmp_path) is None


def test_bundles_of_a_run_contain_the_same_files(
    call: Call, tiny_run: Path, bundle: Path, tmp_path: Path
) -> None:
    again = tmp_path / bundle.name
    call(export, f"--model={tiny_run}", f"--bundle={again}")
    with tarfile.open(bundle) as one, tarfile.open(again) as other:
        assert one.getnames() == other.getnames()
        for name in one.getnames():
            if not name.endswith("model_card.json"):  # contains the date
                assert one.extractfile(name).read() == other.extractfile(name).read()


def archive(path: Path, names: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as file:
        for name, content in names.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            file.addfile(member, io.BytesIO(content))
    return path


@pytest.mark.parametrize(
    "names",
    [
        {"readme": b"not a run"},
        {"run/config.yaml": b"", "../outside": b"x"},
        {"a/config.yaml": b"", "b/config.yaml": b""},
        {"run/config.yaml": b"", "run/tokenizer.model": b""},
        {},
    ],
)
def test_archive_without_a_run_is_refused_and_leaves_nothing(
    names: dict[str, bytes], tmp_path: Path
) -> None:
    (tmp_path / "cache").mkdir()
    path = archive(tmp_path / "cache" / "x.tar.gz", names)
    with pytest.raises(UserError, match="not a bundle"):
        unpack_bundle(path, tmp_path / "cache" / "x")
    assert sorted(entry.name for entry in tmp_path.rglob("*")) == ["cache", "x.tar.gz"]


def test_damaged_weights_in_a_bundle_are_refused(bundle: Path, tmp_path: Path) -> None:
    with tarfile.open(bundle) as file:
        names = {name: file.extractfile(name).read() for name in file.getnames()}
    weights = next(name for name in names if name.endswith(".h5"))
    names[weights] = names[weights][:-1] + bytes([names[weights][-1] ^ 1])
    with pytest.raises(UserError, match="weights are damaged"):
        unpack_bundle(archive(tmp_path / "x.tar.gz", names), tmp_path / "x")
