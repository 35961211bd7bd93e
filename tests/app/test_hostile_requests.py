"""Requests with raw bytes, sent to a server that trusts a proxy."""

import socket
import sys
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.system.conftest import App, running_app

RATE = 200
BODY = b'{"text": "a"}'  # counts as 20 characters


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    command = (sys.executable, "-m", "tests.app.fake_server", "--port=0")
    flags = ("--trusted_proxies=127.0.0.1,10.0.0.0/8", f"--rate={RATE}")
    with running_app(tmp_path_factory.mktemp("server"), *command, *flags) as app:
        app.wait(200)
        yield app


def send(server: App, request: bytes) -> bytes:
    """Send a request; return the answer."""
    address = urlsplit(server.url)
    with socket.create_connection((address.hostname, address.port), timeout=30) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def get(server: App, path: bytes, *headers: bytes) -> bytes:
    lines = [b"GET " + path + b" HTTP/1.1", b"Host: a", b"Connection: close", *headers]
    return send(server, b"\r\n".join(lines) + b"\r\n\r\n")


def translate(server: App, *headers: bytes) -> int:
    """Translate a sentence; return the status."""
    lines = [
        b"POST /api/v1/translate HTTP/1.1",
        b"Host: a",
        b"Connection: close",
        b"Content-Type: application/json",
        b"Content-Length: %d" % len(BODY),
        *headers,
    ]
    return int(send(server, b"\r\n".join(lines) + b"\r\n\r\n" + BODY)[9:12])


@pytest.mark.parametrize(
    ("number", "headers"),
    [
        (1, [b"X-Forwarded-For: 7.7.7.%d, ADDRESS"]),
        (2, [b"X-Forwarded-For: 7.7.7.%d", b"X-Forwarded-For: ADDRESS"]),
        (3, [b"X-Forwarded-For: ADDRESS:%d"]),
        (4, [b"X-Forwarded-For: 7.7.7.%d, ADDRESS, 10.0.0.1"]),
        (5, [b"X-Forwarded-For: ::ffff:ADDRESS", b"X-Real-IP: 7.7.7.%d"]),
        (6, [b"X-Forwarded-For: ADDRESS", b"Forwarded: for=7.7.7.%d"]),
    ],
)
def test_client_cannot_leave_its_quota_by_naming_addresses(
    server: App, number: int, headers: list[bytes]
) -> None:
    own = b"9.9.9.%d" % number
    statuses = [
        translate(
            server,
            *(line.replace(b"%d", b"%d" % turn).replace(b"ADDRESS", own) for line in headers),
        )
        for turn in range(RATE // 20 + 2)
    ]
    assert statuses[: RATE // 20] == [200] * (RATE // 20)
    assert statuses[-1] == 429
    assert translate(server, b"X-Forwarded-For: " + own) == 429


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        (b"/livez", [b"X-Request-Id: forged\rSet-Cookie: forged=1"]),
        (b"/livez", [b"X-Request-Id: forged\x00"]),
        (b"/livez\x0b", []),
        (b"/\x1b[2Jforged", []),
    ],
)
def test_control_characters_in_a_request_are_refused(
    server: App, path: bytes, headers: list[bytes]
) -> None:
    answer = get(server, path, *headers)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"forged" not in answer


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        (b"/livez", [b"X-Request-Id: forged"]),
        (b"/%0d%0aSet-Cookie:forged=1", []),
        (b"/api/v1/models?forged=%0d%0aSet-Cookie:%20forged=1", []),
        (b"http://169.254.169.254/forged", []),
        (b"/docs", [b"X-Forwarded-Host: forged", b"X-Forwarded-Proto: forged"]),
    ],
)
def test_answer_and_log_repeat_nothing_of_a_request(
    server: App, path: bytes, headers: list[bytes]
) -> None:
    answer = get(server, path, *headers)
    assert answer.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 404 "))
    assert b"forged" not in answer
    events = server.events()  # each line is valid JSON
    assert len(events) > 1
    assert "forged" not in server.log.read_text()


@pytest.mark.parametrize(
    "path",
    [
        b"/static/js/../../settings.py",
        b"/static/js/..%2f..%2fsettings.py",
        b"/static/js/%2e%2e/%2e%2e/settings.py",
        b"/static/js//etc/passwd",
        b"/static/js/app.js%00.css",
        b"/download_file/..%2f..%2fetc%2fpasswd",
        b"/api/v1/documents/..%2f..%2f/content",
    ],
)
def test_path_cannot_leave_the_static_files(server: App, path: bytes) -> None:
    assert get(server, path).startswith(b"HTTP/1.1 404 ")
    assert get(server, b"/static/js/app.js").startswith(b"HTTP/1.1 200 ")


def test_name_of_an_uploaded_file_is_not_used(server: App) -> None:
    names = {
        'file"; filename="../../forged\\r\\nX: forged.txt': "a",
        "source": "en",
        "target": "de",
    }
    body = b"--B--\r\n"
    for name, value in names.items():
        part = f'--B\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        body = part.encode() + body
    lines = [
        b"POST /translate_file HTTP/1.1",
        b"Host: a",
        b"Connection: close",
        b"X-Forwarded-For: 9.9.8.1",
        b"Content-Type: multipart/form-data; boundary=B",
        b"Content-Length: %d" % len(body),
    ]
    answer = send(server, b"\r\n".join(lines) + b"\r\n\r\n" + body)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"forged" not in answer
    path = answer.rpartition(b"http://a")[2].partition(b'"')[0]
    download = get(server, path, b"X-Forwarded-For: 9.9.8.1")
    assert b'content-disposition: attachment; filename="translation.txt"' in download.lower()
    assert b"forged" not in download
