"""Mixed traffic on the web application: clients of each kind, and one that is slow."""

import http.client
import json
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from benchmarks.measurement import percentiles
from tests.soak.client import Answer, Client, Message, form_message, json_message

SENTENCE = "sentence"
"""The most frequent kind of request, whose latency is compared over time."""

PAUSE_SECONDS = 0.02
"""Pause of a client after a request, so that the server is busy but has no backlog."""

DOWN_SECONDS = 0.2
"""Pause of a client after a request that failed because the server restarts."""

OPTIONS: tuple[dict[str, Any], ...] = (
    {"alternatives": 3},
    {"format": "html"},
    {"glossary": "dog\tHund"},
    {"protect": True},
)
"""Options of a translation, of which a request has one."""

REFUSALS = (429, 503)

SLOW_SECONDS = 60.0
"""Time in which the server must have closed a connection whose client is slow."""

MAX_FAILURES = 20
"""Failures that are kept as text. All are counted."""


class FailedError(Exception):
    """An answer that the application must not give."""


class Latency(NamedTuple):
    """A request that was answered."""

    at: float
    seconds: float


class Traffic:
    """Clients in threads that send requests until they are stopped."""

    def __init__(self, texts: Iterator[str], seed: int) -> None:
        """Create the traffic; `start` starts it.

        Args:
            texts: Endless sentences.
            seed: Seed of the order of the requests.
        """
        self.answered: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()
        """Requests during a restart, by kind."""
        self.failed: Counter[str] = Counter()
        self.failures: list[str] = []
        self._texts = texts
        self._languages = ("", "")
        self._seed = seed
        self._latencies: list[Latency] = []
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._port = 0
        self._changes = 0
        self._is_down = True
        self._threads: list[threading.Thread] = []

    def start(self, clients: int, languages: tuple[str, str]) -> None:
        """Start clients, and a slow one, that translate between two languages."""
        self._languages = languages
        generators = [random.Random(f"{self._seed} {number}") for number in range(clients)]
        self._threads = [
            threading.Thread(target=self._be_slow, daemon=True),
            *(
                threading.Thread(target=self._send_all, args=[each], daemon=True)
                for each in generators
            ),
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop the clients."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(SLOW_SECONDS)

    def go_down(self) -> None:
        """Tolerate lost requests from now on."""
        self._is_down = True
        self._changes += 1

    def move(self, port: int) -> None:
        """Send new requests to a port, where an application is ready."""
        self._port = port
        self._is_down = False
        self._changes += 1

    def drift(self) -> dict[str, Any]:
        """Return the latencies of the first and of the last third of the time, and forget them."""
        with self._lock:
            latencies, self._latencies = self._latencies, []
        if not latencies:
            return {}
        start, end = latencies[0].at, latencies[-1].at
        third = (end - start) / 3
        first = percentiles([each.seconds for each in latencies if each.at <= start + third])
        last = percentiles([each.seconds for each in latencies if each.at >= end - third])
        return {"sentences": len(latencies), "first_third": first, "last_third": last}

    # --- Clients ----------------------------------------------------------------------------------

    def _send_all(self, generator: random.Random) -> None:
        client = Client()
        kinds = [kind for kind, share in SHARES.items() for _ in range(share)]
        while not self._stopping.is_set():
            kind = generator.choice(kinds)
            changes, was_down = self._changes, self._is_down
            start = time.monotonic()
            try:
                KINDS[kind](self, client, generator)
            except (OSError, http.client.HTTPException, FailedError) as error:
                # A new process does not have the documents of the old one.
                moved = self._changes != changes and kind == "document"
                if was_down or self._is_down or moved:
                    self._count(self.lost, kind)
                    time.sleep(DOWN_SECONDS)
                else:
                    self._fail(kind, f"{type(error).__name__}: {error}")
            else:
                if kind == SENTENCE:
                    with self._lock:
                        self._latencies.append(Latency(start, time.monotonic() - start))
            time.sleep(PAUSE_SECONDS)
        client.close()

    def _send(self, client: Client, kind: str, message: Message, expected: int = 200) -> Answer:
        """Send a request, and again after a refusal; return the answer with the expected status."""
        while True:
            answer = client.send(self._port, message)
            if answer.status == expected:
                self._count(self.answered, kind)
                return answer
            if answer.status not in REFUSALS or self._stopping.is_set() or self._is_down:
                raise FailedError(f"{message.path}: {answer.status} {answer.body[:200]!r}")
            self._count(self.refused, kind)
            time.sleep(float(answer.headers["retry-after"]) / 4)

    def _next_text(self) -> str:
        with self._lock:
            return next(self._texts)

    def _count(self, counter: Counter[str], kind: str) -> None:
        with self._lock:
            counter[kind] += 1

    def _fail(self, kind: str, problem: str) -> None:
        self._count(self.failed, kind)
        if len(self.failures) < MAX_FAILURES:
            self.failures.append(f"{kind}: {problem}")

    # --- Kinds of requests ------------------------------------------------------------------------

    def _translate(self, client: Client, kind: str, text: Any, **fields: Any) -> Any:
        source, target = self._languages
        body = {"text": text, "source": source, "target": target, **fields}
        answer = self._send(client, kind, json_message("/api/v1/translate", body))
        return json.loads(answer.body)["translations"]

    def sentence(self, client: Client, generator: random.Random) -> None:
        """Translate a sentence."""
        self._translate(client, SENTENCE, self._next_text())

    def texts(self, client: Client, generator: random.Random) -> None:
        """Translate a list of texts."""
        texts = [self._next_text() for _ in range(generator.randint(2, 12))]
        if len(self._translate(client, "texts", texts, mode="greedy")) != len(texts):
            raise FailedError("texts: a translation is missing")

    def options(self, client: Client, generator: random.Random) -> None:
        """Translate with alternatives, as HTML or with a glossary."""
        text = f"{self._next_text()} <b>{self._next_text()}</b>"
        self._translate(client, "options", text, **generator.choice(OPTIONS))

    def pair(self, client: Client, generator: random.Random) -> None:
        """Align a text with its translation, or return its attention weights."""
        source, target = self._languages
        text = self._next_text() or "word"
        (translation,) = self._translate(client, "pair", text)
        body = {
            "text": text,
            "translation": translation["text"],
            "source": source,
            "target": target,
        }
        path = generator.choice(["/api/v1/align", "/api/v1/attention"])
        self._send(client, "pair", json_message(path, body))

    def libretranslate(self, client: Client, generator: random.Random) -> None:
        """Translate as a client of LibreTranslate."""
        source, target = self._languages
        body = {"q": self._next_text(), "source": source, "target": target}
        self._send(client, "libretranslate", json_message("/translate", body))

    def page(self, client: Client, generator: random.Random) -> None:
        """Read a page or a list."""
        path = generator.choice(
            [
                *("/", "/docs", "/spec", "/static/js/app.js", "/static/app.css", "/languages"),
                *("/frontend/settings", "/api/v1/models", "/metrics", "/livez", "/readyz"),
            ]
        )
        self._send(client, "page", Message("GET", path))

    def document(self, client: Client, generator: random.Random) -> None:
        """Translate a document, read the translation and delete it."""
        source, target = self._languages
        lines = "\n\n".join(self._next_text() for _ in range(generator.randint(1, 20)))
        fields = {"source": source, "target": target}
        message = form_message("/api/v1/documents", fields, "file.txt", lines.encode())
        created = json.loads(self._send(client, "document", message, 202).body)
        path = f"/api/v1/documents/{created['id']}"
        while True:
            state = json.loads(self._send(client, "document", Message("GET", path)).body)
            if state["state"] not in ("waiting", "translating"):
                break
            time.sleep(DOWN_SECONDS)
        if state["state"] != "done":
            raise FailedError(f"document: {state}")
        content = self._send(client, "document", Message("GET", f"{path}/content")).body.decode()
        if content.count("\n\n") != lines.count("\n\n"):
            raise FailedError("document: a paragraph is missing")
        self._send(client, "document", Message("DELETE", path), 204)

    # --- Slow clients -----------------------------------------------------------------------------

    def _be_slow(self) -> None:
        """Be slow in each of the ways in turn. The server must end each connection in time."""
        while True:
            for be_slow in (_send_header_slowly, _send_body_slowly, _read_slowly, _send_nothing):
                if self._stopping.wait(PAUSE_SECONDS):
                    return
                if self._is_down:
                    continue
                changes, start = self._changes, time.monotonic()
                with suppress(OSError):
                    be_slow(self._port)
                if time.monotonic() - start > SLOW_SECONDS and self._changes == changes:
                    self._fail(be_slow.__name__, f"open after {SLOW_SECONDS} seconds")
                self._count(self.answered, "slow")


KINDS: dict[str, Callable[[Traffic, Client, random.Random], None]] = {
    SENTENCE: Traffic.sentence,
    "texts": Traffic.texts,
    "options": Traffic.options,
    "pair": Traffic.pair,
    "libretranslate": Traffic.libretranslate,
    "page": Traffic.page,
    "document": Traffic.document,
}

SHARES = {
    SENTENCE: 8,
    "texts": 2,
    "options": 3,
    "pair": 2,
    "libretranslate": 2,
    "page": 3,
    "document": 1,
}
"""Relative frequencies of the kinds."""


def _send_header_slowly(port: int) -> None:
    _drip(port, b"POST /api/v1/translate HTTP/1.1\r\n" + b"X-Header: value\r\n" * 1000)


def _send_body_slowly(port: int) -> None:
    head = b"POST /api/v1/translate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    _drip(port, head + b"Content-Length: 2000\r\n\r\n", b'{"text": "' + b"a" * 1980)


def _drip(port: int, *parts: bytes) -> None:
    """Send the last part byte by byte until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=DOWN_SECONDS) as connection:
        for part in parts[:-1]:
            connection.sendall(part)
        end = time.monotonic() + 2 * SLOW_SECONDS
        for byte in parts[-1]:
            connection.sendall(bytes([byte]))
            with suppress(TimeoutError):
                if not connection.recv(4096):
                    return
            if time.monotonic() > end:
                return


def _read_slowly(port: int) -> None:
    """Read a large response in small parts for a time, then leave."""
    with socket.create_connection(("127.0.0.1", port), timeout=DOWN_SECONDS) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.sendall(b"GET /spec HTTP/1.1\r\nHost: a\r\n\r\n" * 20)
        for _ in range(100):
            connection.recv(64)
            time.sleep(DOWN_SECONDS / 2)


def _send_nothing(port: int) -> None:
    """Wait until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=2 * SLOW_SECONDS) as connection:
        connection.recv(1)
