"""Fixtures that run the web application, a stub of TensorFlow Serving and a browser."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, expect, sync_playwright

ROOT = Path(__file__).parents[2]
STUB_SERVER = ROOT / "tests" / "serving" / "stub_server.py"
TIMEOUT = 120


@dataclass(frozen=True)
class App:
    """A running application."""

    url: str
    process: subprocess.Popen[str]
    log: Path

    def get(self, path: str, **options: Any) -> httpx.Response:
        return httpx.get(self.url + path, timeout=TIMEOUT, trust_env=False, **options)

    def post(self, path: str, body: Any = None, **options: Any) -> httpx.Response:
        content = options if body is None else {"json": body, **options}
        return httpx.post(self.url + path, timeout=TIMEOUT, trust_env=False, **content)

    def translate(self, text: Any, **fields: Any) -> Any:
        response = self.post("/api/v1/translate", {"text": text, **fields})
        assert response.status_code == 200, response.text
        return response.json()["translations"]

    def wait(self, status: int) -> None:
        """Wait until /readyz returns a status."""
        wait_until(lambda: self.get("/readyz").status_code == status)

    def events(self) -> list[dict[str, Any]]:
        """Return the logged events."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline, "timeout"
        time.sleep(0.1)


StartApp = Callable[..., AbstractContextManager[App]]


COMMAND = (sys.executable, "-m", "app", "--port=0")
"""The command that starts an application on a free port."""


@contextmanager
def running_app(folder: Path, *command: str) -> Iterator[App]:
    """Run a command that starts an application; it must keep running."""
    log = folder / "log"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT
        ) as process,
    ):
        try:
            line = process.stdout.readline()
            assert line, log.read_text()
            yield App(line.removeprefix("app: ").strip(), process, log)
        finally:
            process.terminate()


@pytest.fixture(scope="session")
def start_app(tmp_path_factory: pytest.TempPathFactory) -> StartApp:
    """Start applications: `with start_app("--model=...") as app`."""
    return lambda *arguments: running_app(tmp_path_factory.mktemp("app"), *COMMAND, *arguments)


@pytest.fixture(scope="session")
def app(start_app: StartApp, tiny_export: Path) -> Iterator[App]:
    """An application with the tiny model in its process, without a cache."""
    with start_app(f"--model=toy={tiny_export}", "--cache=0") as running:
        running.wait(200)
        yield running


@contextmanager
def stub_server(
    export: Path, port: int = 0, *arguments: str
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run a stub of TensorFlow Serving; yield its process and port."""
    command = [
        sys.executable,
        str(STUB_SERVER),
        f"--model={export}",
        f"--rest_port={port}",
        "--enable_model_warmup=false",
        *arguments,
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=os.environ
    ) as process:
        try:
            line = process.stdout.readline()
            assert line, "the stub server did not start"
            yield process, json.loads(line)["rest"]
        finally:
            process.kill()


@pytest.fixture(scope="session")
def start_stub_server() -> Callable[..., Any]:
    return stub_server


expect.set_options(timeout=20_000)  # a busy machine is not an error of the page


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Headless Chromium for one module, because it holds the only event loop of the thread."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("Chromium is not installed")
    with sync_playwright() as playwright:
        # Chromium has no sandbox when it runs as root in a container.
        launched = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield launched
        launched.close()
