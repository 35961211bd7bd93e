import hashlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tfnmt.data.corpora import downloads
from tfnmt.data.corpora.downloads import Download, fetch
from tfnmt.errors import UserError

CONTENT = random.Random(1).randbytes(300_000)
OTHER = random.Random(2).randbytes(300_000)
HALF = len(CONTENT) // 2
MD5 = f"md5:{hashlib.md5(CONTENT).hexdigest()}"
SHA256 = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"


class Handler(BaseHTTPRequestHandler):
    """Answers each request with the next of the server's answers, the last one for ever."""

    server: "Server"

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers.get("Range")))
        answers = self.server.answers
        (answers.pop(0) if len(answers) > 1 else answers[0])(self)

    def log_message(self, *arguments: object) -> None:
        pass

    def answer(self, status: int, length: int | None, **headers: str) -> None:
        self.send_response(status)
        if length is not None:
            headers["Content-Length"] = str(length)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[Answer] = [whole]
        self.asked: list[tuple[str, str | None]] = []
        self.go_on = threading.Event()

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def ranges(self) -> list[str | None]:
        return [ranges for _, ranges in self.asked]

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # the client was killed


Answer = Callable[[Handler], None]


def serve(content: bytes, etag: str, cut: int | None = None) -> Answer:
    """A good server of the content, which breaks off after `cut` bytes if that is given."""

    def answer(handler: Handler) -> None:
        start = 0
        if handler.headers.get("Range") and handler.headers.get("If-Range") == etag:
            start = int(handler.headers["Range"].removeprefix("bytes=").removesuffix("-"))
        size = len(content)
        if start >= size:
            handler.answer(416, 0, Content_Range=f"bytes */{size}")
        elif start:
            part = {"Content_Range": f"bytes {start}-{size - 1}/{size}"}
            handler.answer(206, size - start, ETag=etag, **part)
        else:
            handler.answer(200, size, ETag=etag)
        handler.wfile.write(content[start:] if cut is None else content[start : start + cut])

    return answer


whole = serve(CONTENT, '"one"')
half = serve(CONTENT, '"one"', cut=HALF)


def ignores_range(handler: Handler) -> None:
    handler.answer(200, len(CONTENT), ETag='"one"')
    handler.wfile.write(CONTENT)


def stops_at_half(handler: Handler) -> None:
    """Sends half and then nothing, until the test lets it go on."""
    handler.answer(200, len(CONTENT), ETag='"one"')
    handler.wfile.write(CONTENT[:HALF])
    handler.server.go_on.wait(5)
    handler.wfile.write(CONTENT[HALF:])


def says(status: int, content: bytes = b"", **headers: str) -> Answer:
    def answer(handler: Handler) -> None:
        handler.answer(status, len(content), **headers)
        handler.wfile.write(content)

    return answer


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.02,))
        thread.start()
        yield running
        running.go_on.set()
        running.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def _no_pause_and_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "PAUSE_SECONDS", 0.0)
    monkeypatch.setenv("no_proxy", "*")


def corpus(server: Server, checksum: str | None = None) -> Download:
    return Download(f"{server.base}/sets/corpus.tgz?download=1", len(CONTENT), checksum)


def refused(download: Download, folder: Path, mirror: str | None = None) -> str:
    with pytest.raises(UserError) as caught:
        fetch(download, folder, mirror)
    assert "; " in str(caught.value)
    return str(caught.value)


def files_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {".lock", "checksums.json"}


@pytest.mark.parametrize("checksum", [None, MD5, SHA256])
def test_a_file_is_downloaded_once(server: Server, tmp_path: Path, checksum: str | None) -> None:
    folder = tmp_path / "new" / "folder"
    for _ in range(2):
        path = fetch(corpus(server, checksum), folder)
        assert path == folder / "corpus.tgz"
        assert path.read_bytes() == CONTENT
    assert server.asked == [("/sets/corpus.tgz?download=1", None)]
    assert files_in(folder) == {"corpus.tgz"}


def test_what_is_downloaded_is_said_with_its_size(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fetch(corpus(server), tmp_path)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"tfnmt: downloading {corpus(server).url} (about 0.3 MB)\n"


def test_a_download_may_have_a_name_of_its_own(server: Server, tmp_path: Path) -> None:
    download = Download(f"{server.base}/get?id=7", len(CONTENT), name="corpus.zip")
    assert fetch(download, tmp_path) == tmp_path / "corpus.zip"


def test_a_mirror_replaces_all_before_the_name(server: Server, tmp_path: Path) -> None:
    download = Download("http://nowhere.invalid/sets/corpus.tgz", len(CONTENT))
    assert fetch(download, tmp_path, f"{server.base}/a/b/").read_bytes() == CONTENT
    assert server.asked == [("/a/b/corpus.tgz", None)]


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://x.org/a.tgz", "/a/b.tgz", "x:y"])
def test_only_http_and_https_are_asked(tmp_path: Path, url: str) -> None:
    assert refused(Download(url, 1), tmp_path).startswith(f"{url}: neither http nor https; ")
    mirrored = refused(Download("https://x.org/a.tgz", 1), tmp_path, url)
    assert mirrored.startswith(f"{url}/a.tgz: neither http nor https; ")
    assert not list(tmp_path.iterdir())


def test_a_file_packed_for_the_transfer_only_in_name_stays_as_it_is(
    server: Server, tmp_path: Path
) -> None:
    server.answers = [says(200, CONTENT, Content_Encoding="gzip")]
    assert fetch(corpus(server), tmp_path).read_bytes() == CONTENT


def test_a_broken_connection_is_gone_on_from_where_it_broke(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers = [half, whole]
    assert fetch(corpus(server), tmp_path).read_bytes() == CONTENT
    assert server.ranges == [None, f"bytes={HALF}-"]
    assert files_in(tmp_path) == {"corpus.tgz"}
    assert "trying again" in capsys.readouterr().err


def test_a_date_serves_where_the_etag_is_weak(server: Server, tmp_path: Path) -> None:
    date = "Tue, 01 Oct 2024 10:00:00 GMT"

    def cut(handler: Handler) -> None:
        handler.answer(200, len(CONTENT), ETag='W/"one"', Last_Modified=date)
        handler.wfile.write(CONTENT[:HALF])

    server.answers = [cut, serve(CONTENT, date)]
    assert fetch(corpus(server), tmp_path).read_bytes() == CONTENT
    assert server.ranges == [None, f"bytes={HALF}-"]


def test_without_etag_and_date_it_begins_again(server: Server, tmp_path: Path) -> None:
    def cut(handler: Handler) -> None:
        handler.answer(200, len(CONTENT))
        handler.wfile.write(CONTENT[:HALF])

    server.answers = [cut]
    assert "; the same command begins again, or try" in refused(corpus(server), tmp_path)
    server.answers = [whole]
    assert fetch(corpus(server), tmp_path).read_bytes() == CONTENT
    assert set(server.ranges) == {None}


def test_what_came_before_the_last_attempt_failed_is_told_and_kept(
    server: Server, tmp_path: Path
) -> None:
    server.answers = [serve(CONTENT, '"one"', cut=50_000)]
    message = refused(Download(corpus(server).url, size=123), tmp_path)  # the server knows better
    assert message.startswith(f"{corpus(server).url}: 150,000 of 300,000 bytes came (")
    assert "; the same command goes on from there, or try --mirror=URL, or put " in message
    assert len(server.asked) == downloads.ATTEMPTS
    assert not (tmp_path / "corpus.tgz").exists()
    server.answers = [whole]
    assert fetch(corpus(server), tmp_path).read_bytes() == CONTENT
    assert server.ranges[-1] == "bytes=150000-"


def test_the_pauses_grow(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(downloads, "PAUSE_SECONDS", 2.0)
    monkeypatch.setattr(downloads.time, "sleep", pauses.append)
    server.answers = [serve(CONTENT, '"one"', cut=0)]
    refused(corpus(server), tmp_path)
    assert pauses == [2.0, 4.0]


def test_a_server_that_hangs_is_not_waited_for(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "READ_SECONDS", 0.2)
    server.answers = [stops_at_half, whole]
    assert fetch(corpus(server), tmp_path).read_bytes() == CONTENT
    (went_on,) = [ranges for ranges in server.ranges if ranges]
    assert 0 < int(went_on.removeprefix("bytes=").removesuffix("-")) <= HALF


def test_a_server_that_never_answers_is_told(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "READ_SECONDS", 0.1)
    server.answers = [lambda handler: handler.server.go_on.wait(5) and None]
    assert "0 of 300,000 bytes came (timed out); " in refused(corpus(server), tmp_path)


def test_a_server_that_ignores_range_begins_again(server: Server, tmp_path: Path) -> None:
    server.answers = [half, ignores_range]
    assert fetch(corpus(server), tmp_path).read_bytes() == CONTENT


def test_a_file_that_changed_meanwhile_begins_again(server: Server, tmp_path: Path) -> None:
    server.answers = [half, serve(OTHER, '"two"')]
    assert fetch(corpus(server), tmp_path).read_bytes() == OTHER
    assert server.ranges == [None, f"bytes={HALF}-"]


def test_another_servers_part_is_not_gone_on_with(server: Server, tmp_path: Path) -> None:
    server.answers = [half, *[says(404)] * 2]
    refused(corpus(server), tmp_path)
    server.answers = [serve(OTHER, '"one"')]
    assert fetch(corpus(server), tmp_path, f"{server.base}/mirror").read_bytes() == OTHER
    assert server.ranges[-1] is None


def test_another_part_than_was_asked_for_is_not_used(server: Server, tmp_path: Path) -> None:
    wrong = says(206, CONTENT[:HALF], Content_Range=f"bytes 0-{HALF - 1}/{len(CONTENT)}")
    server.answers = [half, wrong, whole]
    assert fetch(corpus(server), tmp_path).read_bytes() == CONTENT
    assert server.ranges == [None, f"bytes={HALF}-", None]


@pytest.mark.parametrize("length", [len(CONTENT), len(CONTENT) + 1])
def test_a_part_that_is_all_or_more_is_settled(server: Server, tmp_path: Path, length: int) -> None:
    server.answers = [half]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(downloads, "ATTEMPTS", 1)
        refused(corpus(server), tmp_path)
    partial = tmp_path / "corpus.tgz.partial"
    partial.write_bytes((CONTENT + b"more")[:length])
    server.answers = [whole]
    assert fetch(corpus(server), tmp_path).read_bytes() == CONTENT
    assert server.ranges[1:] == [f"bytes={length}-"] + [None] * (length > len(CONTENT))


def test_a_killed_download_goes_on(server: Server, tmp_path: Path) -> None:
    server.answers = [stops_at_half, whole]
    code = (
        "import sys; from pathlib import Path; from tfnmt.data.corpora.downloads import Download, "
        "fetch; "
        "fetch(Download(sys.argv[1], 1), Path(sys.argv[2]))"
    )
    command = [sys.executable, "-c", code, corpus(server).url, str(tmp_path)]
    partial = tmp_path / "corpus.tgz.partial"
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: partial.exists() and partial.stat().st_size > 0)
        os.kill(process.pid, signal.SIGKILL)
    came = partial.stat().st_size
    assert not (tmp_path / "corpus.tgz").exists()
    assert fetch(corpus(server), tmp_path).read_bytes() == CONTENT
    assert server.ranges == [None, f"bytes={came}-"]
    assert files_in(tmp_path) == {"corpus.tgz"}


def test_two_at_once_download_once(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers = [stops_at_half]
    paths: list[Path] = []
    said: list[str] = []

    def has_said(words: str) -> bool:
        said.append(capsys.readouterr().err)
        return words in "".join(said)

    both = [
        threading.Thread(target=lambda: paths.append(fetch(corpus(server), tmp_path)))
        for _ in range(2)
    ]
    both[0].start()
    wait_until(lambda: len(server.asked) == 1)
    both[1].start()
    wait_until(lambda: has_said("waiting for it"))
    server.go_on.set()
    for thread in both:
        thread.join(5)
    assert paths == [tmp_path / "corpus.tgz"] * 2
    assert len(server.asked) == 1
    assert paths[0].read_bytes() == CONTENT
    has_said("")
    assert "".join(said).count("waiting for it") == 1


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("status", [403, 404, 500])
def test_what_the_server_refuses_is_told_with_a_way_out(
    server: Server, tmp_path: Path, status: int
) -> None:
    server.answers = [says(status)]
    message = refused(corpus(server), tmp_path)
    assert message.startswith(f"{corpus(server).url}: the server says {status} ")
    way_out = f"; try --mirror=URL, or put the file there by hand: {tmp_path / 'corpus.tgz'}"
    assert message.endswith(way_out)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "answer",
    [
        says(200, b"Please log in", Content_Type="text/html; charset=utf-8"),
        says(200, b"\n<!DOCTYPE html><p>Please log in", Content_Type="application/gzip"),
        says(200, b"<html><p>Please log in"),
    ],
    ids=["by its type", "by its doctype", "by its tag"],
)
def test_a_web_page_in_place_of_the_file_is_not_kept(
    server: Server, tmp_path: Path, answer: Answer
) -> None:
    server.answers = [answer]
    assert ": a web page, not the file; " in refused(corpus(server), tmp_path)
    assert not files_in(tmp_path)


@pytest.mark.parametrize("checksum", [MD5, SHA256])
def test_a_file_with_another_checksum_than_the_pinned_is_not_kept(
    server: Server, tmp_path: Path, checksum: str
) -> None:
    server.answers = [serve(OTHER, '"one"')]
    algorithm, _, digits = checksum.partition(":")
    found = hashlib.new(algorithm, OTHER).hexdigest()[:12]
    message = refused(corpus(server, checksum), tmp_path)
    assert f": has {algorithm}:{found}, but {algorithm}:{digits[:12]} is pinned" in message
    assert not files_in(tmp_path)
    server.answers = [whole]
    assert fetch(corpus(server, checksum), tmp_path).read_bytes() == CONTENT


def test_a_later_download_must_equal_the_first(server: Server, tmp_path: Path) -> None:
    fetch(corpus(server), tmp_path).unlink()
    note = json.loads((tmp_path / "checksums.json").read_text())["corpus.tgz"]
    assert note["checksum"] == SHA256
    server.answers = [serve(OTHER, '"two"')]
    message = refused(corpus(server), tmp_path)
    assert f"{SHA256[:19]} is noted in {tmp_path / 'checksums.json'}" in message
    assert not files_in(tmp_path)
    server.answers = [whole]
    assert fetch(corpus(server), tmp_path).read_bytes() == CONTENT


def test_each_file_has_its_own_note(server: Server, tmp_path: Path) -> None:
    fetch(corpus(server), tmp_path)
    fetch(Download(f"{server.base}/b.zip", 1), tmp_path)
    assert set(json.loads((tmp_path / "checksums.json").read_text())) == {"corpus.tgz", "b.zip"}


def test_a_file_put_there_by_hand_is_used_and_noted(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "corpus.tgz"
    path.write_bytes(CONTENT)
    assert fetch(corpus(server), tmp_path) == path
    path.write_bytes(OTHER)
    assert f"{path}: has sha256:" in refused(corpus(server), tmp_path)
    assert path.read_bytes() == OTHER  # it is the user's
    assert not server.asked


@pytest.mark.parametrize("content", [OTHER, b"<!doctype html>"])
def test_a_wrong_file_put_there_by_hand_is_refused_and_left(
    server: Server, tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "corpus.tgz"
    path.write_bytes(content)
    for _ in range(2):
        message = refused(corpus(server, MD5), tmp_path)
        assert message.startswith(f"{path}: ")
        assert message.endswith("; remove the file and run again")
    assert path.exists()


def test_a_file_that_is_as_noted_is_not_read_again(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fetch(corpus(server), tmp_path)
    reads: list[str] = []
    digest = hashlib.file_digest
    monkeypatch.setattr(
        downloads.hashlib, "file_digest", lambda *given: reads.append(given[1]) or digest(*given)
    )
    fetch(corpus(server), tmp_path)
    assert reads == []
    os.utime(path, (1, 1))
    fetch(corpus(server), tmp_path)
    fetch(corpus(server), tmp_path)
    assert reads == ["sha256"]
    fetch(corpus(server, MD5), tmp_path)  # pinned since
    fetch(corpus(server, MD5), tmp_path)
    assert reads == ["sha256", "md5"]


def test_notes_that_are_no_json_are_told(server: Server, tmp_path: Path) -> None:
    (tmp_path / "checksums.json").write_text("{")
    assert refused(corpus(server), tmp_path).startswith(f"{tmp_path / 'checksums.json'}: not JSON")


def test_a_name_that_is_not_found_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_such_name(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", no_such_name)
    message = refused(Download("https://nowhere.invalid/a.tgz", 5_000), tmp_path)
    assert ": 0 of 5,000 bytes came (Name or service not known); " in message


def test_a_server_that_is_not_there_is_told(server: Server, tmp_path: Path) -> None:
    with socket.socket() as unused:  # bound, but nobody listens
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        message = refused(Download(f"http://127.0.0.1:{port}/a.tgz", 5_000), tmp_path)
    assert "(Connection refused); " in message


def test_a_connection_that_is_not_secure_is_told(server: Server, tmp_path: Path) -> None:
    message = refused(corpus(server), tmp_path, server.base.replace("http:", "https:"))
    assert ": no secure connection (" in message
    assert "; try --mirror=URL, or put the file there by hand: " in message


def test_a_url_that_makes_no_sense_is_told(tmp_path: Path) -> None:
    assert refused(Download("http:///a.tgz", 1), tmp_path).startswith("http:///a.tgz: ")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has it")
def test_a_full_disk_is_told(server: Server, tmp_path: Path) -> None:
    (tmp_path / "corpus.tgz.partial").symlink_to("/dev/full")
    assert ": No space left on device; " in refused(corpus(server), tmp_path)


def test_a_folder_that_cannot_be_is_told(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    message = refused(corpus(server), tmp_path / "file" / "folder")
    assert message.startswith(f"{tmp_path / 'file'}")
