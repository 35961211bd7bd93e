import gzip
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.archives import make_tar, make_zip
from tests.published import small_corpus
from tfnmt.data.corpora import assembly
from tfnmt.data.corpora.assembly import Origin, assemble, readable
from tfnmt.data.corpora.published import Part, Published, Reader, every_100th_english, segments
from tfnmt.errors import UserError
from tfnmt.runtime.files import file_lock


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (25_000, "25.0 kB"),
        (17_040_000, "17.0 MB"),
        (1_656_362_162, "1.7 GB"),
    ],
)
def test_readable_formats_sizes(size: int, text: str) -> None:
    assert readable(size) == text


class Handler(SimpleHTTPRequestHandler):
    """Serves the files of a folder under any path, and records the requests."""

    server: "Server"

    def translate_path(self, path: str) -> str:
        self.server.requests.append(path)
        return str(self.server.folder / path.rpartition("/")[2])

    def log_message(self, *arguments: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder = folder
        self.requests: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    folder = tmp_path / "server"
    folder.mkdir()
    with Server(folder) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.02,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


TALKS = {
    "talks/train.de-en.de": "eins\nzwei\n",
    "talks/train.de-en.en": "one\ntwo\n",
    "talks/train.de-en.en.xml": "<seg>no</seg>",
}
NEWS = {"news.de": "drei", "news.en": "three\n"}


@pytest.fixture
def corpus(server: Server) -> Published:
    (server.folder / "talks-deen.tgz").write_bytes(make_tar(TALKS, "gz"))
    (server.folder / "get?f=news.zip").write_bytes(make_zip(NEWS))
    for language, text in (("de", "Wert\n"), ("en", "worth\n")):
        (server.folder / f"deu.{language}.gz").write_bytes(gzip.compress(text.encode()))
    return small_corpus(server.url)


def texts(folder: Path) -> dict[str, str]:
    """Return the texts of a folder by file name, without its lock."""
    return {path.name: path.read_text("utf-8") for path in folder.iterdir() if path.name != ".lock"}


def test_split_is_assembled_from_its_parts(
    server: Server, corpus: Published, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    assemble(corpus, ("de", "en"), "train", data, Origin())
    assert server.requests == ["/de/en/talks-deen.tgz", "/get?f=news.zip"]
    assert texts(data / "small" / "de-en") == {
        "train.de": "eins\nzwei\ndrei\n",
        "train.en": "one\ntwo\nthree\n",
    }
    assemble(corpus, ("en", "de"), "val", data, Origin())
    assert server.requests[2:] == ["/x/deu.en.gz", "/x/deu.de.gz"]
    assert texts(data / "small" / "de-en")["val.de"] == "Wert\n"
    assert texts(data / "small" / "de-en")["val.en"] == "worth\n"
    archives = {"talks-deen.tgz", "news.zip", "deu.en.gz", "deu.de.gz"}
    assert {path.name for path in (data / "archives").iterdir()} == {
        *archives,
        ".lock",
        "checksums.json",
    }
    captured = capsys.readouterr()
    assert captured.out == ""
    log = captured.err.splitlines()
    assert log[0].startswith(f"tfnmt: small de-en train: downloading about 2.0 kB to {data}; ")
    assert "needs about 12.0 kB of " in log[0]
    assert log[1] == "tfnmt: license: none at all"


def test_mirror_gives_the_same_files(server: Server, corpus: Published, tmp_path: Path) -> None:
    (server.folder / "get?f=news.zip").rename(server.folder / "news.zip")
    assemble(corpus, ("de", "en"), "train", tmp_path / "data", Origin(f"{server.url}/mirror/"))
    assert server.requests == ["/mirror/talks-deen.tgz", "/mirror/news.zip"]
    assert texts(tmp_path / "data" / "small" / "de-en")["train.en"] == "one\ntwo\nthree\n"


def test_parts_of_other_pairs_are_not_requested(server: Server, tmp_path: Path) -> None:
    members = {name.replace("de", "fr"): text for name, text in TALKS.items()}
    (server.folder / "talks-fren.tgz").write_bytes(make_tar(members, "gz"))
    assemble(small_corpus(server.url), ("en", "fr"), "train", tmp_path, Origin())
    assert server.requests == ["/fr/en/talks-fren.tgz"]
    assert texts(tmp_path / "small" / "fr-en")["train.fr"] == "eins\nzwei\n"


def test_announced_size_excludes_existing_archives(
    server: Server, corpus: Published, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archives = tmp_path / "archives"
    archives.mkdir()
    (archives / "talks-deen.tgz").write_bytes(make_tar(TALKS, "gz"))
    assemble(corpus, ("de", "en"), "train", tmp_path, Origin())
    assert "downloading about 1.0 kB to" in capsys.readouterr().err
    assert server.requests == ["/get?f=news.zip"]


def assembly_error(corpus: Published, data: Path, split: str = "train") -> str:
    with pytest.raises(UserError) as caught:
        assemble(corpus, ("de", "en"), split, data, Origin())
    (problem,) = caught.value.problems
    return problem


@pytest.mark.parametrize(
    ("news", "counts"),
    [
        ({"news.de": "drei\nvier\n", "news.en": "three\n"}, "2 sentences in news.de, 1 in news.en"),
        ({"news.de": "drei\n", "news.en": ""}, "1 sentences in news.de, 0 in news.en"),
        ({"news.de": "", "news.en": ""}, "0 sentences in news.de, 0 in news.en"),
    ],
)
def test_archive_with_different_lengths_is_an_error(
    server: Server, corpus: Published, tmp_path: Path, news: dict[str, str], counts: str
) -> None:
    (server.folder / "get?f=news.zip").write_bytes(make_zip(news))
    message = assembly_error(corpus, tmp_path)
    assert message.startswith(f"news.zip: {counts}; ")
    assert texts(tmp_path / "small" / "de-en") == {}


def test_lengths_are_compared_for_each_part(
    server: Server, corpus: Published, tmp_path: Path
) -> None:
    (server.folder / "talks-deen.tgz").write_bytes(
        make_tar(TALKS | {"talks/train.de-en.de": "eins\n"}, "gz")
    )
    (server.folder / "get?f=news.zip").write_bytes(make_zip(NEWS | {"news.de": "zwei\ndrei\n"}))
    assert assembly_error(corpus, tmp_path).startswith("talks-deen.tgz: 1 sentences in ")
    assert texts(tmp_path / "small" / "de-en") == {}


def test_archive_without_the_member_is_an_error(
    server: Server, corpus: Published, tmp_path: Path
) -> None:
    (server.folder / "get?f=news.zip").write_bytes(make_zip({"news.de": "drei\n"}))
    assert "contains no news.en, " in assembly_error(corpus, tmp_path)
    assert texts(tmp_path / "small" / "de-en") == {}


@pytest.mark.parametrize(
    ("reader", "text"),
    [(every_100th_english(held_out=False), b"\n"), (segments, b"<seg>\xff</seg>")],
)
def test_member_with_another_format_is_an_error(
    server: Server, corpus: Published, tmp_path: Path, reader: Reader, text: bytes
) -> None:
    for language in ("de", "en"):
        (server.folder / f"deu.{language}.gz").write_bytes(gzip.compress(text))
    other = Part(f"{server.url}/{{alpha3}}.{{language}}.gz", "val", 10, reader)
    message = assembly_error(replace(corpus, splits={"val": (other,)}), tmp_path, "val")
    assert message.startswith(f"{tmp_path}/archives/deu.de.gz: val has an unexpected format (")
    assert texts(tmp_path / "small" / "de-en") == {}


def test_full_disk_is_an_error_before_any_request(
    server: Server, corpus: Published, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("Usage", (), {"free": 11_999})
    monkeypatch.setattr(assembly.shutil, "disk_usage", lambda _: usage)
    message = assembly_error(corpus, tmp_path)
    assert message.startswith(f"{tmp_path}: only 12.0 kB of about 12.0 kB are free; ")
    assert "--data_dir" in message
    assert server.requests == []
    usage.free = 12_000  # type: ignore[attr-defined]
    assemble(corpus, ("de", "en"), "train", tmp_path, Origin())


def test_folder_that_cannot_be_created_is_an_error(corpus: Published, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert ": File exists; " in assembly_error(corpus, tmp_path / "file")
    (tmp_path / "small").write_text("")
    assert assembly_error(corpus, tmp_path).startswith(f"{tmp_path}/small/de-en: Not a directory; ")


MOMENTS = {
    "before the parts are checked": "assembly._check = lambda *_: os._exit(9)",
    "before the first file": "assembly._concatenate = lambda *_: os._exit(9)",
    "between the two files": (
        "concatenate, calls = assembly._concatenate, []\n"
        "assembly._concatenate = lambda *a: os._exit(9) if calls else calls.append(concatenate(*a))"
    ),
    "within the second file": (
        "copy, calls = assembly.shutil.copyfileobj, []\n"
        "def stop(*a):\n"
        "    copy(*a)\n"
        "    calls.append(a)\n"
        "    len(calls) < 3 or os._exit(9)\n"
        "assembly.shutil.copyfileobj = stop"
    ),
}
"""Python code that ends a process at a moment of the assembly, as a kill does."""


@pytest.mark.parametrize("moment", MOMENTS)
def test_assembly_completes_the_files_of_a_killed_process(
    server: Server, corpus: Published, tmp_path: Path, moment: str
) -> None:
    (server.folder / "get?f=news.zip").rename(server.folder / "news.zip")
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom tfnmt.data.corpora import assembly\n"
        "from tfnmt.data.corpora.published import Part, Published\n"
        f"{MOMENTS[moment]}\n"
        "corpus = Published('small', (('de', 'en'),), {'train': ("
        "Part('http://x/talks-deen.tgz', 'talks/train.{pair}.{language}', 1000),"
        "Part('http://x/news.zip', 'news.{language}', 1000))}, '3', 'none', pair_folders=True)\n"
        "origin = assembly.Origin(sys.argv[2])\n"
        "assembly.assemble(corpus, ('de', 'en'), 'train', Path(sys.argv[1]), origin)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path, server.url], capture_output=True, timeout=60
    )
    assert done.returncode == 9, done.stderr
    folder = tmp_path / "small" / "de-en"
    assert set(complete_texts(folder)) == (
        {"train.de"} if "second" in moment or "between" in moment else set()
    )
    server.requests.clear()
    assemble(corpus, ("de", "en"), "train", tmp_path, Origin())
    assert server.requests == []  # the archives exist
    assert texts(folder) == {"train.de": "eins\nzwei\ndrei\n", "train.en": "one\ntwo\nthree\n"}


def complete_texts(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if not path.name.startswith(".")]


def test_assembly_keeps_files_that_another_process_wrote_meanwhile(
    server: Server, corpus: Published, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "small" / "de-en"
    assemble_train = partial(assemble, corpus, ("de", "en"), "train", tmp_path, None)
    thread, waiting = threading.Thread(target=assemble_train), threading.Event()
    monkeypatch.setattr("tfnmt.runtime.files.log", lambda _: waiting.set())
    with file_lock(folder / ".lock", "busy"):
        thread.start()
        assert waiting.wait(10)
        for name in ("train.de", "train.en"):
            (folder / name).write_text("of the other process\n")
    thread.join(10)
    assert server.requests == []
    assert texts(folder)["train.de"] == "of the other process\n"


def test_assembly_keeps_the_edited_text_of_another_pair(
    corpus: Published, server: Server, tmp_path: Path
) -> None:
    """Without a folder for each pair, all pairs share the English text."""
    shared = replace(corpus, pair_folders=False)
    members = {name.replace("de", "fr"): text for name, text in TALKS.items()}
    (server.folder / "talks-fren.tgz").write_bytes(make_tar(members, "gz"))
    folder = tmp_path / "small"
    folder.mkdir()
    (folder / "train.en").write_text("one, edited\ntwo\n")
    assemble(shared, ("en", "fr"), "train", tmp_path, Origin())
    assert texts(folder)["train.fr"] == "eins\nzwei\n"
    assert texts(folder)["train.en"] == "one, edited\ntwo\n"


def test_failed_assembly_removes_its_temporary_parts(
    corpus: Published, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(assembly, "_concatenate", full)
    assert ": No space left on device; " in assembly_error(corpus, tmp_path)
    assert texts(tmp_path / "small" / "de-en") == {}
