import hashlib
import json
import os
import random
import shutil
import signal
import socket
import ssl
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
    """Sends the next of the server's answers to each request, and the last one repeatedly."""

    server: "Server"

    def do_GET(self) -> None:
        self.server.requests.append((self.path, self.headers.get("Range")))
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
        self.answers: list[Answer] = [complete]
        self.requests: list[tuple[str, str | None]] = []
        self.continue_sending = threading.Event()

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def ranges(self) -> list[str | None]:
        return [ranges for _, ranges in self.requests]

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # the client was killed


Answer = Callable[[Handler], None]


def serve(content: bytes, etag: str, limit: int | None = None) -> Answer:
    """Answer with the content. The connection breaks after `limit` bytes, if given."""

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
        handler.wfile.write(content[start:] if limit is None else content[start : start + limit])

    return answer


complete = serve(CONTENT, '"one"')
half = serve(CONTENT, '"one"', limit=HALF)


def ignores_range(handler: Handler) -> None:
    handler.answer(200, len(CONTENT), ETag='"one"')
    handler.wfile.write(CONTENT)


def stops_at_half(handler: Handler) -> None:
    """Send half of the content, then wait until the test sets `continue_sending`."""
    handler.answer(200, len(CONTENT), ETag='"one"')
    handler.wfile.write(CONTENT[:HALF])
    handler.server.continue_sending.wait(5)
    handler.wfile.write(CONTENT[HALF:])


def respond(status: int, content: bytes = b"", **headers: str) -> Answer:
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
        running.continue_sending.set()
        running.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def _no_pause_and_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "PAUSE_SECONDS", 0.0)
    monkeypatch.setenv("no_proxy", "*")


def corpus(server: Server, checksum: str | None = None) -> Download:
    return Download(f"{server.base}/sets/corpus.tgz?download=1", len(CONTENT), checksum)


def fetch_error(download: Download, folder: Path, mirror: str | None = None) -> str:
    with pytest.raises(UserError) as caught:
        fetch(download, folder, mirror)
    assert "; " in str(caught.value)
    return str(caught.value)


def files_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {".lock", "checksums.json"}


@pytest.mark.parametrize("checksum", [None, MD5, SHA256])
def test_fetch_downloads_a_file_once(server: Server, tmp_path: Path, checksum: str | None) -> None:
    folder = tmp_path / "new" / "folder"
    for _ in range(2):
        path = fetch(corpus(server, checksum), folder)
        assert path == folder / "corpus.tgz"
        assert path.read_bytes() == CONTENT
    assert server.requests == [("/sets/corpus.tgz?download=1", None)]
    assert files_in(folder) == {"corpus.tgz"}


def test_fetch_logs_url_and_size(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fetch(corpus(server), tmp_path)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"tfnmt: downloading {corpus(server).url} (about 0.3 MB)\n"


def test_download_name_replaces_the_one_of_the_url(server: Server, tmp_path: Path) -> None:
    download = Download(f"{server.base}/get?id=7", len(CONTENT), name="corpus.zip")
    assert fetch(download, tmp_path) == tmp_path / "corpus.zip"


def test_mirror_replaces_everything_before_the_file_name(server: Server, tmp_path: Path) -> None:
    download = Download("http://nowhere.invalid/sets/corpus.tgz", len(CONTENT))
    assert fetch(download, tmp_path, f"{server.base}/a/b/").read_bytes() == CONTENT
    assert server.requests == [("/a/b/corpus.tgz", None)]


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://x.org/a.tgz", "/a/b.tgz", "x:y"])
def test_fetch_accepts_only_http_and_https(tmp_path: Path, url: str) -> None:
    assert fetch_error(Download(url, 1), tmp_path).startswith(f"{url}: neither http nor https; ")
    mirrored = fetch_error(Download("https://x.org/a.tgz", 1), tmp_path, url)
    assert mirrored.startswith(f"{url}/a.tgz: neither http nor https; ")
    assert not list(tmp_path.iterdir())


def test_fetch_ignores_a_content_encoding_of_gzip(server: Server, tmp_path: Path) -> None:
    server.answers = [respond(200, CONTENT, Content_Encoding="gzip")]
    assert fetch(corpus(server), tmp_path).read_bytes() == CONTENT


def test_fetch_resumes_after_a_broken_connection(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers = [half, complete]
    assert fetch(corpus(server), tmp_path).read_bytes() == CONTENT
    assert server.ranges == [None, f"bytes={HALF}-"]
    assert files_in(tmp_path) == {"corpus.tgz"}
    assert "trying again" in capsys.readouterr().err


def test_fetch_resumes_with_a_date_if_the_etag_is_weak(server: Server, tmp_path: Path) -> None:
    date = "Tue, 01 Oct 2024 10:00:00 GMT"

    def send_half(handler: Handler) -> None:
        handler.answer(200, len(CONTENT), ETag='W/"one"', Last_Modified=date)
        handler.wfile.write(CONTENT[:HALF])

    server.answers = [send_half, serve(CONTENT, date)]
    assert fetch(corpus(server), tmp_path).read_bytes() == CONTENT
    assert server.ranges == [None, f"bytes={HALF}-"]


def test_fetch_starts_over_without_etag_and_date(server: Server, tmp_path: Path) -> None:
    def send_half(handler: Handler) -> None:
        handler.answer(200, len(CONTENT))
        handler.wfile.write(CONTENT[:HALF])

    server.answers = [send_half]
    assert "; the same command starts over, or try" in fetch_error(corpus(server), tmp_path)
    server.answers = [complete]
    assert fetch(corpus(server), tmp_path).read_bytes() == CONTENT
    assert set(server.ranges) == {None}


def test_last_failed_attempt_reports_and_keeps_the_received_part(
    server: Server, tmp_path: Path
) -> None:
    server.answers = [serve(CONTENT, '"one"', limit=50_000)]
    message = fetch_error(
        Download(corpus(server).url, size=123), tmp_path
    )  # the server sends another size
    assert message.startswith(f"{corpus(server).url}: only 150,000 of 300,000 bytes received (")
    assert "; the same command resumes from there, or try --mirror=URL, or put " in message
    assert len(server.requests) == downloads.ATTEMPTS
    assert not (tmp_path / "corpus.tgz").exists()
    server.answers = [complete]
    assert fetch(corpus(server), tmp_path).read_bytes() == CONTENT
    assert server.ranges[-1] == "bytes=150000-"


def test_pauses_between_attempts_grow(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(downloads, "PAUSE_SECONDS", 2.0)
    monkeypatch.setattr(downloads.time, "sleep", pauses.append)
    server.answers = [serve(CONTENT, '"one"', limit=0)]
    fetch_error(corpus(server), tmp_path)
    assert pauses == [2.0, 4.0]


def test_fetch_resumes_after_a_read_timeout(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "READ_SECONDS", 0.2)
    server.answers = [stops_at_half, complete]
    assert fetch(corpus(server), tmp_path).read_bytes() == CONTENT
    (resumed,) = [ranges for ranges in server.ranges if ranges]
    assert 0 < int(resumed.removeprefix("bytes=").removesuffix("-")) <= HALF


def test_server_that_never_answers_is_an_error(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "READ_SECONDS", 0.1)
    server.answers = [lambda handler: handler.server.continue_sending.wait(5) and None]
    assert "only 0 of 300,000 bytes received (timed out); " in fetch_error(corpus(server), tmp_path)


def test_fetch_starts_over_if_the_server_ignores_range(server: Server, tmp_path: Path) -> None:
    server.answers = [half, ignores_range]
    assert fetch(corpus(server), tmp_path).read_bytes() == CONTENT


def test_fetch_starts_over_if_the_file_has_changed(server: Server, tmp_path: Path) -> None:
    server.answers = [half, serve(OTHER, '"two"')]
    assert fetch(corpus(server), tmp_path).read_bytes() == OTHER
    assert server.ranges == [None, f"bytes={HALF}-"]


def test_fetch_does_not_resume_the_part_of_another_url(server: Server, tmp_path: Path) -> None:
    server.answers = [half, *[respond(404)] * 2]
    fetch_error(corpus(server), tmp_path)
    server.answers = [serve(OTHER, '"one"')]
    assert fetch(corpus(server), tmp_path, f"{server.base}/mirror").read_bytes() == OTHER
    assert server.ranges[-1] is None


def test_fetch_discards_a_part_that_was_not_requested(server: Server, tmp_path: Path) -> None:
    wrong = respond(206, CONTENT[:HALF], Content_Range=f"bytes 0-{HALF - 1}/{len(CONTENT)}")
    server.answers = [half, wrong, complete]
    assert fetch(corpus(server), tmp_path).read_bytes() == CONTENT
    assert server.ranges == [None, f"bytes={HALF}-", None]


@pytest.mark.parametrize("length", [len(CONTENT), len(CONTENT) + 1])
def test_fetch_accepts_a_complete_part_and_discards_a_longer_one(
    server: Server, tmp_path: Path, length: int
) -> None:
    server.answers = [half]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(downloads, "ATTEMPTS", 1)
        fetch_error(corpus(server), tmp_path)
    partial = tmp_path / "corpus.tgz.partial"
    partial.write_bytes((CONTENT + b"more")[:length])
    server.answers = [complete]
    assert fetch(corpus(server), tmp_path).read_bytes() == CONTENT
    assert server.ranges[1:] == [f"bytes={length}-"] + [None] * (length > len(CONTENT))


def test_killed_download_resumes(server: Server, tmp_path: Path) -> None:
    server.answers = [stops_at_half, complete]
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
    received = partial.stat().st_size
    assert not (tmp_path / "corpus.tgz").exists()
    assert fetch(corpus(server), tmp_path).read_bytes() == CONTENT
    assert server.ranges == [None, f"bytes={received}-"]
    assert files_in(tmp_path) == {"corpus.tgz"}


def test_concurrent_downloads_transfer_the_file_once(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers = [stops_at_half]
    paths: list[Path] = []
    messages: list[str] = []

    def logged(words: str) -> bool:
        messages.append(capsys.readouterr().err)
        return words in "".join(messages)

    both = [
        threading.Thread(target=lambda: paths.append(fetch(corpus(server), tmp_path)))
        for _ in range(2)
    ]
    both[0].start()
    wait_until(lambda: len(server.requests) == 1)
    both[1].start()
    wait_until(lambda: logged("waiting for it"))
    server.continue_sending.set()
    for thread in both:
        thread.join(5)
    assert paths == [tmp_path / "corpus.tgz"] * 2
    assert len(server.requests) == 1
    assert paths[0].read_bytes() == CONTENT
    logged("")
    assert "".join(messages).count("waiting for it") == 1


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("status", [403, 404, 410, 500])
def test_http_error_names_status_and_alternatives(
    server: Server, tmp_path: Path, status: int
) -> None:
    server.answers = [respond(status)]
    message = fetch_error(corpus(server), tmp_path)
    assert message.startswith(f"{corpus(server).url}: the server answered {status} ")
    assert message.endswith(
        f"; try --mirror=URL, or put the file here by hand: {tmp_path / 'corpus.tgz'}"
    )
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "answer",
    [
        respond(200, b"Please log in", Content_Type="text/html; charset=utf-8"),
        respond(200, b"\n<!DOCTYPE html><p>Please log in", Content_Type="application/gzip"),
        respond(200, b"<html><p>Please log in"),
    ],
    ids=["by its type", "by its doctype", "by its tag"],
)
def test_web_page_instead_of_the_file_is_not_kept(
    server: Server, tmp_path: Path, answer: Answer
) -> None:
    server.answers = [answer]
    assert "a web page instead of the file; " in fetch_error(corpus(server), tmp_path)
    assert not files_in(tmp_path)


def test_redirect_to_the_new_address_of_the_file_is_followed(
    server: Server, tmp_path: Path
) -> None:
    server.answers = [respond(301, Location="/moved/corpus.tgz"), complete]
    assert fetch(corpus(server), tmp_path).read_bytes() == CONTENT
    assert [path for path, _ in server.requests] == [
        "/sets/corpus.tgz?download=1",
        "/moved/corpus.tgz",
    ]


@pytest.mark.parametrize(
    ("location", "problem"),
    [
        ("/welcome", "received a web page instead of the file"),
        ("/sets/corpus.tgz", "Exceeded 30 redirects"),
        ("file:///etc/passwd", "No connection adapters were found"),
    ],
    ids=["a page", "itself", "a local file"],
)
def test_redirect_to_something_else_is_an_error_with_alternatives(
    server: Server, tmp_path: Path, location: str, problem: str
) -> None:
    page = respond(200, b"<p>We have moved", Content_Type="text/html")
    moved = respond(301, Location=location)
    server.answers = [moved, page] if location == "/welcome" else [moved]
    message = fetch_error(corpus(server), tmp_path)
    assert problem in message
    assert message.endswith(
        f"; try --mirror=URL, or put the file here by hand: {tmp_path / 'corpus.tgz'}"
    )
    assert not files_in(tmp_path)


@pytest.mark.parametrize("checksum", [MD5, SHA256])
def test_file_without_the_pinned_checksum_is_not_kept(
    server: Server, tmp_path: Path, checksum: str
) -> None:
    server.answers = [serve(OTHER, '"one"')]
    algorithm, _, digits = checksum.partition(":")
    found = hashlib.new(algorithm, OTHER).hexdigest()[:12]
    message = fetch_error(corpus(server, checksum), tmp_path)
    assert f": checksum {algorithm}:{found}, but {algorithm}:{digits[:12]} is pinned" in message
    assert not files_in(tmp_path)
    server.answers = [complete]
    assert fetch(corpus(server, checksum), tmp_path).read_bytes() == CONTENT


def test_later_download_must_have_the_recorded_checksum(server: Server, tmp_path: Path) -> None:
    fetch(corpus(server), tmp_path).unlink()
    note = json.loads((tmp_path / "checksums.json").read_text())["corpus.tgz"]
    assert note["checksum"] == SHA256
    server.answers = [serve(OTHER, '"two"')]
    message = fetch_error(corpus(server), tmp_path)
    assert f"{SHA256[:19]} is recorded in {tmp_path / 'checksums.json'}" in message
    assert not files_in(tmp_path)
    server.answers = [complete]
    assert fetch(corpus(server), tmp_path).read_bytes() == CONTENT


def test_checksums_are_recorded_for_each_file(server: Server, tmp_path: Path) -> None:
    fetch(corpus(server), tmp_path)
    fetch(Download(f"{server.base}/b.zip", 1), tmp_path)
    assert set(json.loads((tmp_path / "checksums.json").read_text())) == {"corpus.tgz", "b.zip"}


def test_file_put_there_by_hand_is_used_and_recorded(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "corpus.tgz"
    path.write_bytes(CONTENT)
    assert fetch(corpus(server), tmp_path) == path
    path.write_bytes(OTHER)
    assert f"{path}: checksum sha256:" in fetch_error(corpus(server), tmp_path)
    assert path.read_bytes() == OTHER  # a file of the user
    assert not server.requests


@pytest.mark.parametrize("content", [OTHER, b"<!doctype html>"])
def test_wrong_file_put_there_by_hand_is_rejected_and_kept(
    server: Server, tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "corpus.tgz"
    path.write_bytes(content)
    for _ in range(2):
        message = fetch_error(corpus(server, MD5), tmp_path)
        assert message.startswith(f"{path}: ")
        assert message.endswith("; remove the file and run again")
    assert path.exists()


def test_file_with_the_recorded_size_and_date_is_not_read_again(
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
    fetch(corpus(server, MD5), tmp_path)  # now pinned
    fetch(corpus(server, MD5), tmp_path)
    assert reads == ["sha256", "md5"]


def test_invalid_checksums_json_is_an_error(server: Server, tmp_path: Path) -> None:
    (tmp_path / "checksums.json").write_text("{")
    assert fetch_error(corpus(server), tmp_path).startswith(
        f"{tmp_path / 'checksums.json'}: not JSON"
    )


def test_unknown_host_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_such_name(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", no_such_name)
    message = fetch_error(Download("https://nowhere.invalid/a.tgz", 5_000), tmp_path)
    assert ": only 0 of 5,000 bytes received (Name or service not known); " in message


def test_refused_connection_is_an_error(server: Server, tmp_path: Path) -> None:
    with socket.socket() as unused:  # bound, but not listening
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        message = fetch_error(Download(f"http://127.0.0.1:{port}/a.tgz", 5_000), tmp_path)
    assert "(Connection refused); " in message


def test_insecure_connection_is_an_error(server: Server, tmp_path: Path) -> None:
    message = fetch_error(corpus(server), tmp_path, server.base.replace("http:", "https:"))
    assert ": no secure connection (" in message
    assert "; try --mirror=URL, or put the file here by hand: " in message


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl: not installed")
def test_redirect_from_https_to_http_is_an_error(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = "openssl req -x509 -nodes -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -days 1"
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command.split(), *names, *files], check=True, capture_output=True)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with Server() as secure:
        secure.socket = context.wrap_socket(secure.socket, server_side=True)
        secure.answers = [respond(302, Location=f"{server.base}/corpus.tgz")]
        threading.Thread(target=secure.serve_forever, args=(0.02,), daemon=True).start()
        download = Download(f"https://127.0.0.1:{secure.server_port}/corpus.tgz", len(CONTENT))
        message = fetch_error(download, tmp_path / "data")
        secure.answers = [complete]
        assert fetch(download, tmp_path / "data").read_bytes() == CONTENT
        secure.shutdown()
    assert ": was redirected to an address without encryption; try --mirror=URL" in message


def test_invalid_url_is_an_error(tmp_path: Path) -> None:
    assert fetch_error(Download("http:///a.tgz", 1), tmp_path).startswith("http:///a.tgz: ")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the /dev/full of Linux")
def test_full_disk_is_an_error(server: Server, tmp_path: Path) -> None:
    (tmp_path / "corpus.tgz.partial").symlink_to("/dev/full")
    assert ": No space left on device; " in fetch_error(corpus(server), tmp_path)


def test_folder_that_cannot_be_created_is_an_error(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    message = fetch_error(corpus(server), tmp_path / "file" / "folder")
    assert message.startswith(f"{tmp_path / 'file'}")
