"""Requests of any shape to every route: each is answered with a documented status."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.server.application import create
from app.settings import Settings
from tests.app.fake_server import make_guard

JSON = "application/json"
URL_ENCODED = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data; boundary=x"

FIELDS = {
    "/api/v1/translate": (
        *("text", "source", "target", "model", "mode", "alternatives"),
        *("format", "protect", "glossary"),
    ),
    "/api/v1/align": ("text", "translation", "source", "target", "model"),
    "/api/v1/attention": ("text", "translation", "source", "target", "kind", "layer"),
    "/api/v1/suggestions": ("text", "translation", "correction", "source", "target", "model"),
    "/translate": ("q", "source", "target", "format", "alternatives", "api_key"),
    "/detect": ("q", "api_key"),
    "/suggest": ("q", "s", "source", "target", "api_key"),
}
PATHS = st.sampled_from([*FIELDS])
GET_PATHS = ("/", "/docs", "/spec", "/languages", "/frontend/settings", "/livez", "/readyz")

WORDS = st.sampled_from(
    ["a", "a. b.", "en", "de", "auto", "beam", "greedy", "cross", "text", "fake", "html", "<b>a"]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=10**30)
    | st.floats()
    | st.text(st.characters(), max_size=40)
    | WORDS
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
NAMES = st.sampled_from(sorted({name for names in FIELDS.values() for name in names}))
OBJECTS = st.dictionaries(NAMES | st.text(max_size=9), VALUES, max_size=8)
VALID = st.fixed_dictionaries(
    {"text": WORDS, "translation": WORDS, "q": WORDS, "target": st.just("de")}
)


class Application:
    """The application with a fake engine."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        guard, metrics = make_guard(Settings(models=(), backends=()))
        runner.run(guard.models.start())
        self._application = create(guard, metrics)
        self._client = httpx.AsyncClient(
            transport=httpx.ASGITransport(self._application), base_url="http://test"
        )
        self._spec = self.send("GET", "/spec").json()

    def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self._runner.run(self._client.request(method, path, **options))

    def check(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send a request. The status must be documented and the body must be JSON."""
        response = self.send(method, path, **options)
        documented = self._spec["paths"][path][method.lower()]["responses"]
        assert str(response.status_code) in documented, response.text
        assert ("error" in response.json()) == (response.status_code != 200)
        return response


@pytest.fixture(scope="module")
def application() -> Iterator[Application]:
    with asyncio.Runner() as runner:
        yield Application(runner)


@given(path=PATHS, fields=OBJECTS, others=st.just({}) | VALID)
def test_json_object_is_answered(
    application: Application, path: str, fields: dict[str, Any], others: dict[str, str]
) -> None:
    body = {name: value for name, value in others.items() if name in FIELDS[path]} | fields
    content = json.dumps(body).encode()
    application.check("POST", path, content=content, headers={"Content-Type": JSON})


@given(path=PATHS, content=VALUES.map(json.dumps).map(str.encode) | st.binary(max_size=200))
@example(path="/translate", content=b"[" * 100_000)
@example(path="/api/v1/align", content=b'{"text": ' + b"9" * 5000 + b"}")
@example(path="/api/v1/translate", content=b'{"text": "\\ud800"}')
@example(path="/translate", content=b'{"q": "a", "target": "de", "alternatives": NaN}')
def test_body_of_any_bytes_is_answered(application: Application, path: str, content: bytes) -> None:
    application.check("POST", path, content=content, headers={"Content-Type": JSON})


@given(
    fields=st.lists(st.tuples(NAMES | st.text(max_size=9), WORDS | st.text(max_size=20))),
    encoding=st.sampled_from(["utf-8", "latin-1", "utf-16"]),
)
def test_url_encoded_form_is_answered(
    application: Application, fields: list[tuple[str, str]], encoding: str
) -> None:
    content = urlencode(fields, encoding=encoding, errors="ignore").encode()
    application.check("POST", "/translate", content=content, headers={"Content-Type": URL_ENCODED})


@given(
    fields=st.lists(st.tuples(NAMES | st.text(max_size=9), st.binary(max_size=30) | WORDS)),
    headers=st.lists(st.binary(max_size=40), max_size=3),
    end=st.sampled_from([b"--x--\r\n", b"--x\r\n", b"--x--", b""]),
)
def test_multipart_form_is_answered(
    application: Application,
    fields: list[tuple[str, bytes | str]],
    headers: list[bytes],
    end: bytes,
) -> None:
    head = b"".join(header + b"\r\n" for header in headers)
    content = b"".join(
        b'--x\r\nContent-Disposition: form-data; name="%b"\r\n%b\r\n%b\r\n'
        % (
            name.encode(errors="replace"),
            head,
            value if isinstance(value, bytes) else value.encode(),
        )
        for name, value in fields
    )
    application.check(
        "POST", "/translate", content=content + end, headers={"Content-Type": MULTIPART}
    )


@given(
    path=PATHS,
    content_type=st.binary(max_size=40)
    | st.builds(
        lambda kind, rest: kind.encode() + rest,
        st.sampled_from([JSON, URL_ENCODED, "multipart/form-data", MULTIPART]),
        st.binary(max_size=30),
    ),
    name=st.sampled_from(["Authorization", "X-Api-Key", "Origin", "Sec-Fetch-Site", "Accept"]),
    value=st.binary(max_size=40),
)
def test_headers_of_any_bytes_are_answered(
    application: Application, path: str, content_type: bytes, name: str, value: bytes
) -> None:
    content = b'{"text": "a", "translation": "b", "q": "a", "target": "de"}'
    headers = {b"Content-Type": content_type, name.encode(): value}
    application.check("POST", path, content=content, headers=headers)


@given(
    method=st.sampled_from(["GET", "HEAD", "POST", "PUT", "OPTIONS", "TRACE"]),
    path=st.sampled_from([*GET_PATHS, "/static/", "/static/js/app.js", "/nosuch", *FIELDS]),
    rest=st.text(max_size=30) | st.sampled_from(["\0", "/", "/..", "/../app.css", "a" * 5000]),
    query=st.text(max_size=30),
)
def test_path_of_any_characters_is_answered(
    application: Application, method: str, path: str, rest: str, query: str
) -> None:
    url = f"{path}{quote(rest, errors='replace')}?{quote(query, errors='replace')}"
    response = application.send(method, url)
    assert response.status_code in (200, 400, 404, 405, 415)
    assert response.headers["X-Request-Id"]
