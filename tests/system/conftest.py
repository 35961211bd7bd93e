"""The web application as a process, and a browser, for those that speak to them."""

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
STANDIN = ROOT / "tests" / "serving" / "standin.py"
PATIENCE = 120


@dataclass(frozen=True)
class App:
    """A running application."""

    url: str
    process: subprocess.Popen[str]
    log: Path

    def get(self, path: str, **options: Any) -> httpx.Response:
        return httpx.get(self.url + path, timeout=PATIENCE, trust_env=False, **options)

    def post(self, path: str, body: Any = None, **options: Any) -> httpx.Response:
        given = options if body is None else {"json": body, **options}
        return httpx.post(self.url + path, timeout=PATIENCE, trust_env=False, **given)

    def translate(self, text: Any, **fields: Any) -> Any:
        answer = self.post("/api/v1/translate", {"text": text, **fields})
        assert answer.status_code == 200, answer.text
        return answer.json()["translations"]

    def wait(self, status: int) -> None:
        """Until /readyz says so."""
        wait_until(lambda: self.get("/readyz").status_code == status)

    def events(self) -> list[dict[str, Any]]:
        """What it has logged."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, "it has not come to pass"
        time.sleep(0.1)


Start = Callable[..., AbstractContextManager[App]]


COMMAND = (sys.executable, "-m", "app", "--port=0")
"""The command that starts an application on a free port."""


@contextmanager
def started(folder: Path, *command: str) -> Iterator[App]:
    """The application that a command starts; it must not end by itself."""
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
def start_app(tmp_path_factory: pytest.TempPathFactory) -> Start:
    """Starts applications: `with start_app("--model=...") as app`."""
    return lambda *arguments: started(tmp_path_factory.mktemp("app"), *COMMAND, *arguments)


@pytest.fixture(scope="session")
def app(start_app: Start, tiny_export: Path) -> Iterator[App]:
    """One that has the tiny model in its process, and no cache to hide behind."""
    with start_app(f"--model=toy={tiny_export}", "--cache=0") as running:
        running.wait(200)
        yield running


@contextmanager
def standin(
    export: Path, port: int = 0, *arguments: str
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A stand-in for TensorFlow Serving and its port."""
    command = [
        sys.executable, str(STANDIN), f"--model={export}", f"--rest_port={port}",
        "--enable_model_warmup=false", *arguments,
    ]  # fmt: skip
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=os.environ
    ) as process:
        try:
            line = process.stdout.readline()
            assert line, "the stand-in did not start"
            yield process, json.loads(line)["rest"]
        finally:
            process.kill()


@pytest.fixture(scope="session")
def start_standin() -> Callable[..., Any]:
    return standin


expect.set_options(timeout=20_000)  # a busy machine is no fault of the page


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium without a window, for one module: it holds the only event loop of the thread."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("Chromium is not installed")
    with sync_playwright() as playwright:
        # As root, in a container, there is no sandbox.
        started = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()
