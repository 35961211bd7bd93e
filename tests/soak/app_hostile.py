"""Hostile requests to every route of the web application."""

import http.client
import io
import json
import random
import re
import socket
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import PurePath
from typing import Any, NoReturn
from urllib.parse import quote

from tests.soak.client import Answer, Client, Message, form_message, json_message
from tests.soak.hostile_inputs import ALPHABETS, CONTROLS, HOSTILE, MARKUP
from tests.tfnmt.documents.files import FILES

JSON = "application/json"

FIELDS = ("text", "translation", "correction", "q", "s", "source", "target", "model", "mode")
OPTIONS = ("alternatives", "format", "protect", "glossary", "kind", "layer", "api_key")

MAX_SECONDS = 40.0
"""Time to answer: twice the deadline of the application."""

TIMEOUT_SECONDS = 5.0
"""Time in which the server must react to bytes that are not HTTP."""

HEADERS = (
    *("Authorization", "X-Api-Key", "X-Forwarded-For", "Origin", "Sec-Fetch-Site", "Accept"),
    *("Accept-Encoding", "Content-Type", "Cookie", "Range", "Expect", "Upgrade", "Host"),
)

PATHS = (
    "..",
    "../../etc/passwd",
    "%00",
    "%2e%2e%2f",
    "\r\nX-Injected: 1",
    "a" * 3000,
    "",
    "/",
    "?",
)

MARKER = "x-injected"
"""A header that no answer may have: the requests try to inject it."""

SUFFIXES = sorted({PurePath(name).suffix for name in FILES} | {".exe", ""})


@dataclass
class Report:
    """The answers of a route."""

    statuses: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    slowest: float = 0.0


class Route:
    """A route of the OpenAPI description."""

    def __init__(self, method: str, path: str, description: dict[str, Any]) -> None:
        self.method = method
        self.path = path
        self.statuses = set(description["responses"])
        body = description.get("requestBody", {}).get("content", {})
        self.takes_file = "multipart/form-data" in body and JSON not in body

    @property
    def name(self) -> str:
        """Method and path."""
        return f"{self.method} {self.path}"


def find_routes(port: int) -> list[Route]:
    """Return the routes of an application, and its files."""
    described = json.loads(Client().send(port, Message("GET", "/spec")).body)["paths"]
    routes = [
        Route(method.upper(), path, description)
        for path, methods in described.items()
        for method, description in methods.items()
    ]
    pages = {"responses": dict.fromkeys(("200", "206", "304", "400", "404", "405", "416"))}
    return [*routes, *(Route("GET", path, pages) for path in ("/", "/docs", "/static/{name}"))]


def attack(port: int, route: Route, total: int, seed: int) -> Report:
    """Send hostile requests to a route. The application must answer each one correctly.

    Args:
        port: Port of the application.
        route: The route.
        total: Number of requests.
        seed: Seed of the requests.
    """
    generator = random.Random(f"{seed} {route.name}")
    report, client = Report(), Client()
    for _ in range(total):
        make = generator.choice(_makers(route))
        start = time.monotonic()
        verdict = make(port, route, client, generator)
        seconds = time.monotonic() - start
        report.slowest = max(report.slowest, seconds)
        if seconds > MAX_SECONDS:
            verdict = f"slow: {verdict}, {seconds:.0f} s"
        kind, _, problem = verdict.partition(":")
        report.statuses[kind] += 1
        if problem:
            report.failures.append(f"{make.__name__}: {verdict}")
    client.close()
    return report


Make = Callable[[int, Route, Client, random.Random], str]


def _makers(route: Route) -> list[Make]:
    if route.method != "POST":
        return [_send_path, _send_path, _send_headers, _send_raw]
    if route.takes_file:
        return [
            _send_document,
            _send_document,
            _send_document,
            _send_form,
            _send_headers,
            _send_raw,
        ]
    return [
        _send_object,
        _send_object,
        _send_text,
        _send_bytes,
        _send_form,
        _send_headers,
        _send_raw,
    ]


# --- Kinds of requests ----------------------------------------------------------------------------


def _send_object(port: int, route: Route, client: Client, generator: random.Random) -> str:
    """Send fields of wrong types and values."""
    names = generator.sample(FIELDS + OPTIONS, generator.randint(0, 8))
    return _check(
        port, route, client, json_message(route.path, {n: _value(generator) for n in names})
    )


def _send_text(port: int, route: Route, client: Client, generator: random.Random) -> str:
    """Send a hostile text in a request that is valid otherwise."""
    body = {name: str(generator.choice(HOSTILE)(generator)) for name in FIELDS[:3]}
    if not route.path.startswith("/api/"):
        body = {"q": body["text"], "s": body["text"], "target": generator.choice(["de", "en"])}
    elif route.path.endswith("/translate"):
        body = {"text": body["text"]}
    return _check(port, route, client, json_message(route.path, body))


def _send_bytes(port: int, route: Route, client: Client, generator: random.Random) -> str:
    """Send a body that is no JSON, or damaged JSON."""
    valid = json.dumps({"text": "a", "q": "a", "target": "de"}).encode()
    position = generator.randrange(len(valid))
    body = generator.choice(
        [
            generator.randbytes(generator.randint(0, 500)),
            valid[:position] + generator.randbytes(1) + valid[position + 1 :],
            b"[" * generator.randint(1, 100_000),
            b'{"text": ' + b"9" * generator.randint(1, 5000) + b"}",
            b'{"text": "\\ud800"}',
            b'{"text": NaN, "q": Infinity}',
            b'{"a": 1, ' * 2000,
        ]
    )
    return _check(port, route, client, Message("POST", route.path, body, {"Content-Type": JSON}))


def _send_form(port: int, route: Route, client: Client, generator: random.Random) -> str:
    """Send a form, possibly damaged or with another boundary."""
    fields = {name: str(_value(generator))[:50] for name in generator.sample(FIELDS, 3)}
    name = _text(generator)[:40]
    message = form_message(route.path, fields, name, generator.randbytes(generator.randint(0, 300)))
    body = message.body[: generator.randint(0, len(message.body))]
    kind = generator.choice(
        [
            message.headers["Content-Type"],
            "multipart/form-data",
            "multipart/form-data; boundary=x",
            "application/x-www-form-urlencoded",
            "text/plain; charset=utf-16",
        ]
    )
    return _check(port, route, client, Message("POST", route.path, body, {"Content-Type": kind}))


def _send_document(port: int, route: Route, client: Client, generator: random.Random) -> str:
    """Send a damaged document, a wrong one, or one that expands."""
    suffix = generator.choice(SUFFIXES)
    content = generator.choice([_damaged, _bomb, _entities, _archive_of_paths])(suffix, generator)
    fields = {"source": "en", "target": generator.choice(["de", "en", _text(generator)[:20]])}
    name = generator.choice(
        [f"a{suffix}", f"../../{_text(generator)[:50]}{suffix}", "a.exe", suffix]
    )
    message = form_message(route.path, fields, name.replace("\0", ""), content)
    answer, verdict = _exchange(port, route, client, message)
    if answer is not None and answer.status == 202:
        path = f"{route.path}/{json.loads(answer.body)['id']}"
        client.send(port, Message("DELETE", path))
    return verdict


def _send_path(port: int, route: Route, client: Client, generator: random.Random) -> str:
    """Send an address with any characters."""
    word = generator.choice([*PATHS, _text(generator), _text(generator)])
    path = re.sub(r"\{\w+\}", lambda _: quote(word, safe=""), route.path)
    path += generator.choice(
        ["", "", "/", f"?{quote(_text(generator))}", f"/{quote(word, safe='')}"]
    )
    method = generator.choice([route.method, route.method, "HEAD", "OPTIONS", "PUT", "TRACE"])
    headers = {"Range": f"bytes={generator.randint(-9, 9)}-{generator.randint(-9, 9**9)}"}
    return _check(port, route, client, Message(method, path, b"", headers))  # type: ignore[arg-type]


def _send_headers(port: int, route: Route, client: Client, generator: random.Random) -> str:
    """Send headers with any bytes that a header may contain."""
    headers: dict[str, str | bytes] = {"Content-Type": JSON} if route.method == "POST" else {}
    for name in generator.sample(HEADERS, generator.randint(1, 4)):
        value = generator.randbytes(generator.randint(0, 200))
        headers[name] = value.translate(None, bytes([*range(32), 127]))
    if not generator.randrange(10):
        headers["X-Long"] = "a" * generator.randint(10_000, 100_000)
    body = b'{"text": "a", "translation": "b", "q": "a", "target": "de"}'
    message = Message(
        route.method, _any_path(route), body if "Content-Type" in headers else b"", headers
    )
    return _check(port, route, client, message)


def _send_raw(port: int, route: Route, client: Client, generator: random.Random) -> str:
    """Send bytes that are not HTTP, or almost."""
    line = f"{route.method} {_any_path(route)} HTTP/1.1\r\n".encode()
    host = b"Host: a\r\n"
    junk = generator.randbytes(generator.randint(1, 400))
    content = generator.choice(
        [
            junk,
            line + junk,
            line + host + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
            line + host + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            line + host + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffff\r\n" + junk,
            line + host + b"Content-Length: -1\r\n\r\n",
            line + host + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n" + junk,
            line + host + b"A: b\x00c\r\n\r\n",
            line + b" folded\r\n" + host + b"\r\n",
            line.replace(b"1.1", b"9.9") + host + b"\r\n",
            b"GET http://[::1/ HTTP/1.1\r\n" + host + b"\r\n",
        ]
    )
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS) as connection:
            connection.sendall(content)
            connection.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda: connection.recv(65_536), b""))
    except TimeoutError:
        return f"open: {content[:100]!r}"
    except OSError:
        return "closed"
    if not answer:
        return "closed"
    status = answer[9:12].decode("latin-1")
    if MARKER.encode() in answer.lower() or not status.isdecimal() or status >= "500":
        return f"{status}: {content[:100]!r} {answer[:200]!r}"
    return status


# --- Answers --------------------------------------------------------------------------------------


def _check(port: int, route: Route, client: Client, message: Message) -> str:
    return _exchange(port, route, client, message)[1]


def _exchange(
    port: int, route: Route, client: Client, message: Message
) -> tuple[Answer | None, str]:
    """Send a request; return the answer, and its status or `kind: problem`."""
    try:
        answer = client.send(port, message)
    except ValueError:  # http.client does not send this address
        return None, "not sent"
    except (OSError, http.client.HTTPException) as error:
        if _is_alive(port):
            return None, "closed"
        return None, f"lost: {error!r}, {_shown(message)}"
    problem = _problem(route, message, answer)
    return answer, f"{answer.status}: {problem}; {_shown(message)}" if problem else str(
        answer.status
    )


def _problem(route: Route, message: Message, answer: Answer) -> str:
    """Return the reason why an answer is wrong, or an empty string."""
    usual = {"400", "404", "405", "413", "415", "431", "204"}
    expected = route.statuses | (usual if message.path != route.path or message.headers else set())
    if str(answer.status) not in expected:
        return f"not documented, {answer.body[:200]!r}"
    if MARKER in answer.headers:
        return "the header was injected"
    if answer.status == 503 and "retry-after" not in answer.headers:
        return "no Retry-After"
    if answer.headers.get("content-type") == JSON and answer.body:
        try:
            json.loads(answer.body.decode("utf-8"), parse_constant=_reject_constant)
        except ValueError as error:
            return f"invalid JSON, {error}"
    return ""


def _reject_constant(constant: str) -> NoReturn:
    raise ValueError(constant)


def _is_alive(port: int) -> bool:
    return Client().send(port, Message("GET", "/livez")).status == 200


def _shown(message: Message) -> str:
    return f"{message.method} {message.path[:200]} {message.headers!r:.300} {message.body[:300]!r}"


# --- Values ---------------------------------------------------------------------------------------


def _any_path(route: Route) -> str:
    return re.sub(r"\{\w+\}", "nosuch", route.path)


def _text(generator: random.Random) -> str:
    alphabet = generator.choice([ALPHABETS, CONTROLS, "".join(MARKUP), "abc/.\\:\"'<>%"])
    return "".join(generator.choices(alphabet, k=generator.randint(1, 60)))


def _value(generator: random.Random, depth: int = 0) -> Any:
    values: list[Callable[[], Any]] = [
        lambda: _text(generator),
        lambda: generator.choice(["en", "de", "auto", "beam", "greedy", "cross", "html", ""]),
        lambda: generator.choice([None, True, False, -1, 0, 1, 10**30, 1e308, -0.5]),
        lambda: "a. " * generator.randint(0, 3000),
    ]
    if depth < 3:
        values += [
            lambda: [_value(generator, depth + 1) for _ in range(generator.randint(0, 5))],
            lambda: {_text(generator): _value(generator, depth + 1) for _ in range(3)},
        ]
    return generator.choice(values)()


def _damaged(suffix: str, generator: random.Random) -> bytes:
    """Return a document of the format, or of another one, with changed bytes."""
    content = bytearray(FILES.get(f"a{suffix}") or generator.choice(list(FILES.values())))
    for _ in range(generator.choice([0, 1, 5, 50])):
        content[generator.randrange(len(content))] = generator.randrange(256)
    return bytes(content[: generator.randint(len(content) // 2, len(content))])


def _bomb(suffix: str, generator: random.Random) -> bytes:
    """Return an archive that is a thousand times as large unpacked."""
    return _zeros(generator.choice([1, 5, 20]))


@cache  # takes longer than a request
def _zeros(megabytes: int) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("word/document.xml", "content.xml", "META-INF/container.xml"):
            archive.writestr(name, bytes(megabytes * 1_000_000))
    return content.getvalue()


def _entities(suffix: str, generator: random.Random) -> bytes:
    """Return XML whose entities expand, or name a file."""
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
    file = generator.choice(["file:///etc/passwd", "http://127.0.0.1:1/"])
    return (
        f'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY e0 "word">{entities}'
        f'<!ENTITY f SYSTEM "{file}">]><xliff version="1.2"><file><body><trans-unit id="1">'
        f"<source>&e11;&f;</source></trans-unit></body></file></xliff>"
    ).encode()


def _archive_of_paths(suffix: str, generator: random.Random) -> bytes:
    """Return an archive whose members have paths that leave it, or of which there are many."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for number in range(generator.choice([1, 10, 3000])):
            archive.writestr(f"../../{_text(generator)}{number}".replace("\0", ""), b"text")
    return content.getvalue()
