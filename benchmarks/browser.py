"""Measure the page of a web export in headless Chromium, compared with the LiteRT engine.

    python -m benchmarks.browser --input=FILE [--model=MODEL] [--target=de] [--words=12]

Exports a LiteRT model as a web page and serves it. Prints a JSON line: the transferred megabytes,
the milliseconds from opening the page until the model has translated a first sentence (median of
three new browser profiles), the median milliseconds of a sentence in the page and in the engine,
one thread each, and the number of equal translations. Page and engine take turns, ten sentences at
a time. --words selects the sentences with this number of words.
"""

import json
import shutil
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from threading import Thread
from typing import Any, BinaryIO

from absl import flags
from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.measurement import read_sentences
from tfnmt.cli import run_command
from tfnmt.errors import UsageError, UserError
from tfnmt.exporting.litertjs import find_litertjs
from tfnmt.exporting.web import export_web
from tfnmt.litert.model import LiteRTModel
from tfnmt.loading.models import find_folder, find_version
from tfnmt.loading.registry import DEFAULT_MODEL

FLAGS = flags.FlagValues()
flags.DEFINE_string("input", None, "text with one sentence per line", flag_values=FLAGS)
flags.DEFINE_string("model", DEFAULT_MODEL, "a LiteRT export", flag_values=FLAGS)
flags.DEFINE_string("target", None, "language of the translations", flag_values=FLAGS)
flags.DEFINE_integer("words", None, "words of a sentence (default: any)", 1, flag_values=FLAGS)
flags.DEFINE_integer("sentences", 1000, "largest number of sentences", 1, flag_values=FLAGS)

PROFILES = 3
TURN = 10  # sentences
LOAD_TIMEOUT = 120_000  # milliseconds

TRANSLATE = """async ([texts, target]) => {
  const { Model } = await import("./js/model.js");
  const model = (globalThis.measured ??= new Model());
  await model.load();
  const found = [];
  for (const text of texts) {
    const begin = performance.now();
    const { text: translation } = await model.translate(text, target);
    found.push([translation, performance.now() - begin]);
  }
  return found;
}"""

Timed = tuple[str, float]
"""A translation, and the milliseconds it took."""


class StaticServer:
    """A server for static files, which counts the bytes that it sends."""

    def __init__(self, folder: Path) -> None:
        """Serve a folder on a free port of this machine."""
        self.requests: list[str] = []
        self.sent = 0
        server = self

        class Handler(SimpleHTTPRequestHandler):
            def do_GET(self) -> None:
                server.requests.append(self.path)
                super().do_GET()

            def copyfile(self, source: Any, outputfile: Any) -> None:
                server.send(self.path, source.read(), outputfile)

            def log_message(self, *message: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=folder))
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        Thread(target=self._server.serve_forever, daemon=True).start()

    def send(self, path: str, content: bytes, file: BinaryIO) -> None:
        """Send the content of the file at a path."""
        self.sent += len(content)
        file.write(content)

    def stop(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()


def main(values: Any, positional: list[str]) -> None:
    """Measure and print the result."""
    if positional:
        raise UsageError(f"{positional[0]}: not expected; see --help")
    chromium = shutil.which("chromium")
    if chromium is None:
        raise UserError("chromium: not installed; install it")
    version = find_version(find_folder(values.model))
    if version is None:
        raise UserError(f"--model={values.model}: no LiteRT export; export the run with it")
    texts = [
        text for text in read_sentences(values.input) if values.words in (None, len(text.split()))
    ][: values.sentences]
    if not texts:
        raise UserError(f"--words={values.words}: {values.input} has no such sentence; omit it")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "web"
        export_web(version, find_litertjs(None), folder)
        server = StaticServer(folder)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            result = _measure(browser, server, LiteRTModel(version, 1), texts, values.target)
            browser.close()
        server.stop()
    print(json.dumps(result))


def _measure(
    browser: Browser,
    server: StaticServer,
    model: LiteRTModel,
    texts: Sequence[str],
    target: str | None,
) -> dict[str, Any]:
    ready = [_open(browser, server) for _ in range(PROFILES)]
    page = ready[-1][0]
    pairs: list[tuple[Timed, Timed]] = []
    page.evaluate(TRANSLATE, [texts[:TURN], target])  # WebAssembly is compiled again when it is hot
    for start in range(0, len(texts), TURN):
        part = texts[start : start + TURN]
        found = page.evaluate(TRANSLATE, [part, target])
        pairs += zip(found, [_translate(model, text, target) for text in part], strict=True)
    in_page, in_engine = (median(each[side][1] for each in pairs) for side in (0, 1))
    return {
        "task": "browser",
        "transferred_mb": round(ready[-1][2] / 1e6, 2),
        "ready_ms": median(each[1] for each in ready),
        "sentences": len(pairs),
        "equal": sum(page[0] == engine[0] for page, engine in pairs),
        "page_ms": round(in_page, 1),
        "engine_ms": round(in_engine, 1),
        "ratio": round(in_page / in_engine, 2),
    }


def _open(browser: Browser, server: StaticServer) -> tuple[Page, float, int]:
    """Open the page in a new profile; return it, milliseconds until it is ready, and bytes sent."""
    before = server.sent
    page = browser.new_page()
    page.goto(server.url)
    page.wait_for_selector("html[data-ready]", timeout=LOAD_TIMEOUT)
    return page, float(page.get_attribute("html", "data-ready") or 0), server.sent - before


def _translate(model: LiteRTModel, text: str, target: str | None) -> Timed:
    inputs = {"target": [target.encode()]} if target else {}
    begin = time.perf_counter()
    found = model.signatures["serving_default"](text=[text.encode()], **inputs)
    return found["translation"][0].decode(), 1000 * (time.perf_counter() - begin)


if __name__ == "__main__":
    run_command(main, FLAGS, __doc__)
