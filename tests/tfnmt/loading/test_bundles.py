"""Bundles: written, served by an HTTP server, and loaded by their URL."""

import functools
import gzip
import http.server
import io
import shutil
import tarfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.archives import make_tar
from tfnmt import export, translate
from tfnmt.data.corpora.archives import MIN_LIMIT
from tfnmt.errors import UsageError, UserError
from tfnmt.loading import registry
from tfnmt.loading.bundles import license_title, unpack_bundle
from tfnmt.loading.models import find_run
from tfnmt.loading.registry import find_bundle
from tfnmt.runs.checkpoints import sha256

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
    monkeypatch.setattr("tfnmt.loading.models.cache_folder", lambda: tmp_path)
    call(translate, f"--model={tiny_run}", "the dog sleeps")
    expected = capsys.readouterr().out
    for _ in range(2):  # first downloaded, then found in the cache
        call(translate, f"--model={site}/toy-en-de.tar.gz", "the dog sleeps")
        assert capsys.readouterr().out == expected
    (folder,) = (tmp_path / "models").glob("toy-en-de-*[!z]")
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


def test_bundle_in_a_file_is_unpacked_once_per_content(bundle: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    folder = find_bundle(str(bundle), cache)
    assert folder is not None
    assert (folder / "config.yaml").is_file()
    copy = Path(shutil.copy(bundle, tmp_path))
    assert find_bundle(str(copy), cache) == folder
    copy.write_bytes(b"other")
    with pytest.raises(UserError, match=f"^{copy}: not a bundle"):
        find_bundle(str(copy), cache)


def test_failed_download_names_the_file_to_put_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"by hand: {tmp_path}/x-\w+\.tar\.gz$") as caught:
        find_bundle("http://127.0.0.1:9/x.tar.gz", tmp_path)
    assert "--mirror" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/", "http://127.0.0.1:9/...tar.gz"])
def test_url_without_a_file_name_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"^--model={url}: "):
        find_bundle(url, tmp_path)


def test_bundle_of_a_litert_export_translates_like_it(
    call: Call,
    tiny_litert: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "tiny.tar.gz"
    call(export, f"--model={tiny_litert.parent}", f"--bundle={path}")
    monkeypatch.setitem(registry.MODELS, "tiny", sha256(path))
    monkeypatch.setattr(registry, "_shipped", lambda model: path if model == "tiny" else None)
    monkeypatch.setattr("tfnmt.loading.models.cache_folder", lambda: tmp_path)
    for model in (str(tiny_litert), "tiny"):
        call(translate, f"--model={model}", "the dog sleeps")
    expected, found = capsys.readouterr().out.splitlines()
    assert found == expected
    (folder,) = (tmp_path / "models").glob("tiny-*")
    assert {path.name for path in folder.iterdir()} == {
        "LICENSE.txt",
        "model.tflite",
        "model_card.json",
        "tokenizer.model",
    }


def test_damaged_litert_bundle_is_refused(call: Call, tiny_litert: Path, tmp_path: Path) -> None:
    path = tmp_path / "tiny.tar.gz"
    call(export, f"--model={tiny_litert}", f"--bundle={path}")
    content = members(path)
    content["tiny/model.tflite"] = flipped(content["tiny/model.tflite"])
    with pytest.raises(UserError, match="damaged, or of another export"):
        unpack_bundle(archive(tmp_path / "x.tar.gz", content), tmp_path / "x")
    del content["tiny/LICENSE.txt"]
    with pytest.raises(UserError, match="contains no model"):
        unpack_bundle(archive(tmp_path / "x.tar.gz", content), tmp_path / "x")


def test_half_precision_bundle_is_smaller_and_has_rounded_weights(
    call: Call, tiny_run: Path, bundle: Path, tmp_path: Path
) -> None:
    path = tmp_path / "half.tar.gz"
    call(export, f"--model={tiny_run}", f"--bundle={path}", "--quantization=float16")
    assert path.stat().st_size < 0.7 * bundle.stat().st_size
    unpack_bundle(path, tmp_path / "half")
    half, whole = (find_run(folder).load_translator() for folder in (tmp_path / "half", tiny_run))
    for ours, theirs in zip(half.transformer.weights, whole.transformer.weights, strict=True):
        assert ours.dtype == "float32"
        np.testing.assert_array_equal(ours, theirs.numpy().astype("float16"))


def test_int8_bundle_of_a_run_is_refused(call: Call, tiny_run: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.tar.gz"
    with pytest.raises(UsageError, match="--quantization=int8: not for a bundle of a run"):
        call(export, f"--model={tiny_run}", f"--bundle={path}", "--quantization=int8")


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
    path.write_bytes(make_tar(names, "gz"))
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


def members(bundle: Path) -> dict[str, bytes]:
    with tarfile.open(bundle) as file:
        return {name: file.extractfile(name).read() for name in file.getnames()}


def flipped(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


@pytest.mark.parametrize(
    ("ending", "message"), [(".h5", "the weights are damaged"), (".model", "tokenizer")]
)
def test_damaged_file_in_a_bundle_is_refused(
    bundle: Path, tmp_path: Path, ending: str, message: str
) -> None:
    content = members(bundle)
    name = next(name for name in content if name.endswith(ending))
    content[name] = flipped(content[name])
    with pytest.raises(UserError, match=rf"^{tmp_path / 'x.tar.gz'}: .*{message}"):
        unpack_bundle(archive(tmp_path / "x.tar.gz", content), tmp_path / "x")
    assert [path.name for path in tmp_path.iterdir()] == ["x.tar.gz"]


def test_bundle_of_an_earlier_version_has_no_checksum_of_its_tokenizer(
    bundle: Path, tmp_path: Path
) -> None:
    content = members(bundle)
    (name,) = (name for name in content if name.endswith("tokenizer.sha256"))
    (checksums,) = (name for name in content if name.endswith("checksums.json"))
    lines = [line for line in content[checksums].splitlines() if b"tokenizer" not in line]
    lines[-2] = lines[-2].rstrip(b",")
    del content[name]
    content[checksums] = b"\n".join(lines)
    unpack_bundle(archive(tmp_path / "x.tar.gz", content), tmp_path / "x")
    assert (tmp_path / "x" / "config.yaml").is_file()
    content["toy-en-de/tokenizer.model"] = b"nonsense"
    with pytest.raises(UserError, match=r"damaged \(tokenizer\.model: "):
        unpack_bundle(archive(tmp_path / "y.tar.gz", content), tmp_path / "y")


@pytest.mark.parametrize("cut", [slice(None, -8), slice(None, -4), slice(None, 1000)])
def test_truncated_archive_is_refused(bundle: Path, tmp_path: Path, cut: slice) -> None:
    path = tmp_path / "x.tar.gz"
    path.write_bytes(bundle.read_bytes()[cut])
    with pytest.raises(UserError, match=f"^{path}: not a bundle, or damaged"):
        unpack_bundle(path, tmp_path / "x")


def test_wrong_checksum_of_the_archive_is_refused(bundle: Path, tmp_path: Path) -> None:
    path, content = tmp_path / "x.tar.gz", bytearray(bundle.read_bytes())
    content[-8] ^= 1  # the checksum is followed by four bytes with the size
    path.write_bytes(content)
    with pytest.raises(UserError, match=f"^{path}: .*CRC"):
        unpack_bundle(path, tmp_path / "x")


def add(file: tarfile.TarFile, name: str, kind: bytes, link: str = "") -> None:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, link
    file.addfile(member)


def test_archive_cannot_write_outside_its_folder(tmp_path: Path) -> None:
    """CVE-2025-4517: links so deep that Python does not resolve them, then a way out."""
    (tmp_path / "cache").mkdir()
    victim = tmp_path / "victim"
    victim.write_text("intact")
    folder, links, place = "d" * 247, "abcdefghijklmnop", ""
    with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as file:
        for link in links:
            add(file, f"{place}{folder}", tarfile.DIRTYPE)
            add(file, f"{place}{link}", tarfile.SYMTYPE, folder)
            place += f"{folder}/"
        deep = f"{'/'.join(links)}/{'l' * 254}"
        add(file, deep, tarfile.SYMTYPE, "../" * len(links))
        add(file, "escape", tarfile.SYMTYPE, f"{deep}/{'../' * 15}{tmp_path}")
        outside = tarfile.TarInfo("escape/victim")
        outside.size = 7
        file.addfile(outside, io.BytesIO(b"changed"))
    with pytest.raises(UserError, match="neither a file nor a folder"):
        unpack_bundle(tmp_path / "x.tar.gz", tmp_path / "cache" / "x")
    assert victim.read_text() == "intact"
    assert not list((tmp_path / "cache").iterdir())


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE]
)
def test_archive_with_a_link_or_device_is_refused(tmp_path: Path, kind: bytes) -> None:
    with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as file:
        add(file, "run", tarfile.DIRTYPE)
        add(file, "run/config.yaml", kind, "run")
    with pytest.raises(UserError, match=r"run/config\.yaml: neither a file nor a folder"):
        unpack_bundle(tmp_path / "x.tar.gz", tmp_path / "x")


@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_archive_that_unpacks_to_far_more_is_refused(tmp_path: Path, kind: bytes) -> None:
    """The content of a file, or a header that Python would hold in memory."""
    path = tmp_path / "x.tar.gz"
    member = tarfile.TarInfo("run/config.yaml")
    member.type, member.size = kind, 2 * MIN_LIMIT
    with gzip.open(path, "wb", 1) as file:
        file.write(member.tobuf())
        for _ in range(2 * MIN_LIMIT // 2**20):
            file.write(bytes(2**20))
    assert path.stat().st_size < MIN_LIMIT // 10
    with pytest.raises(UserError, match=rf"unpacks to more than {MIN_LIMIT:,} bytes\); remove"):
        unpack_bundle(path, tmp_path / "x")
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.tar.gz"]


def test_hard_link_to_a_missing_member_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.tar.gz"
    with tarfile.open(path, "w:gz") as file:
        link = tarfile.TarInfo("run/config.yaml")
        link.type, link.linkname = tarfile.LNKTYPE, "run/missing"
        file.addfile(link)
    with pytest.raises(UserError, match=f"^{path}: not a bundle, or damaged"):
        unpack_bundle(path, tmp_path / "x")


def test_corrupt_compression_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.tar.gz"
    path.write_bytes(gzip.compress(b"")[:10] + b"\xff" * 100)
    with pytest.raises(UserError, match=f"^{path}: not a bundle, or damaged"):
        unpack_bundle(path, tmp_path / "x")


@pytest.mark.parametrize(
    ("content", "title"), [(b"", ""), (b"\n\n", ""), (b"gr\xfcn\nmore", "gr\ufffdn")]
)
def test_license_title_of_any_content(tmp_path: Path, content: bytes, title: str) -> None:
    (tmp_path / "LICENSE.txt").write_bytes(content)
    assert license_title(tmp_path) == title


def test_bundle_is_unpacked_once_by_two_processes(bundle: Path, site: str, tmp_path: Path) -> None:
    url = f"{site}/{bundle.name}"
    with ThreadPoolExecutor(2) as pool:
        folders = set(pool.map(find_bundle, [url, url], [tmp_path, tmp_path]))
    (folder,) = folders
    assert not (folder / folder.name).exists()
    assert not list(tmp_path.glob(".*.tmp"))


def test_leftovers_of_a_killed_process_are_removed(bundle: Path, site: str, tmp_path: Path) -> None:
    folder = find_bundle(f"{site}/{bundle.name}", tmp_path)
    folder.rename(tmp_path / f".{folder.name}~7.unpacked.tmp")
    assert find_bundle(f"{site}/{bundle.name}", tmp_path) == folder
    assert not list(tmp_path.glob(".*.tmp"))
