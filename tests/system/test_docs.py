"""The commands of the tutorial, the how-to guides and the concept pages, run one after another.

They run in a clone whose python makes models small and training runs short. Blocks that cannot run
here (`<!-- not run: reason -->`) are only checked for valid flags, in tests/docs/test_commands.py.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.conftest import TINY, settings
from tests.docs.pages import ROOT, blocks
from tfnmt.data.corpora.toy import grammar

OUTPUTS = {
    "how-to/prepare-data": ".cache/prepared",
    "how-to/train": "runs/another/averaged",
    "how-to/translate": "lines.de",
    "how-to/fine-tune": "runs/fine-tuned/summary.json",
    "how-to/corrections": "runs/corrected/summary.json",
    "how-to/language-pair": ".cache/prepared",
    "how-to/back-translation": "runs/with-mono/summary.json",
    "how-to/knowledge-distillation": "runs/small/summary.json",
    "how-to/data-diversification": "runs/diversified/student/summary.json",
    "how-to/reproduce": "my-en-de.tar.gz",
    "how-to/comet": "test.out",
    "how-to/serve": "export/ctranslate2/en_de/model.bin",
    "how-to/litert": "export/litert/en_de/1/model.tflite",
    "how-to/quantize": "export/ctranslate2/en_de_int8/model.bin",
    "reference/python-api": "answers.tsv",
}
"""A file or folder that the commands of each page write."""

PLOTS = {"concepts/transformer": "trace.html", "concepts/plots": "schedule.png"}
"""A file that the commands of each page about the model write."""

LINES = {"my": 400, "dev": 20, "test": 20, "mono": 40, "new": 40}
"""Number of lines of each text that are written or kept."""

PYTHON = """\
#!/bin/sh
case "$2" in
tfnmt.train | tfnmt.prepare | tfnmt.diversify) set -- "$@" {settings} ;;
tfnmt.translate)
    case "$*" in
    *--model=export/* | *--model=tatoeba-* | *--engine=litert*) ;;
    *) set -- "$@" --prefix=Der ;;
    esac ;;
app) set -- "$@" --port=0 ;;
esac
exec "{python}" "$@"
"""
"""The python of the clone. A forced prefix keeps an almost untrained model from empty output."""


class Clone:
    """A folder in which the blocks of pages run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.port = 0
        """Port of the application that was started last."""
        for name in ("tfnmt", "app", "configs", "models"):
            shutil.copytree(ROOT / name, path / name)
        shutil.copy(ROOT / "pyproject.toml", path)
        shorter = " ".join(settings(TINY))
        python = path / ".venv" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(self._moved(PYTHON.format(settings=shorter, python=sys.executable)))
        python.chmod(0o755)
        (path / ".curlrc").write_text('fail\nsilent\nnoproxy = "*"\n')

    def follow(self, page: str) -> None:
        """Run the blocks of a page in order. An application runs until the end of the page."""
        running = []
        try:
            for block in blocks(ROOT / "docs" / f"{page}.md"):
                if not block.not_run and " -m app " in block.text:
                    running.append(self._serve(block.text))
                elif not block.not_run:
                    self._run(block.text)
                    self._shorten()
        finally:
            for process in running:
                with process:  # closes its output and waits
                    process.terminate()

    def _run(self, text: str) -> None:
        shell = self._shell(text)
        done = subprocess.run(**shell, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert done.returncode == 0, f"{text}\n{done.stdout}"

    def _serve(self, text: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(**self._shell(f"exec {text}"), stdout=subprocess.PIPE)
        line = process.stdout.readline()
        assert line, text
        self.port = urlsplit(line.removeprefix("app: ").strip()).port
        end = time.monotonic() + 200
        while not self._is_ready():
            assert process.poll() is None, text
            assert time.monotonic() < end, text
            time.sleep(0.2)
        return process

    def _is_ready(self) -> bool:
        try:
            url = f"http://127.0.0.1:{self.port}/readyz"
            return httpx.get(url, trust_env=False).status_code == 200
        except httpx.TransportError:
            return False

    def _shell(self, text: str) -> dict[str, Any]:
        """Return how to run a text. An error in any line stops it."""
        return {
            "args": ["bash", "-e", "-c", self._moved(text)],
            "cwd": self.path,
            "text": True,
            "env": os.environ | {"CURL_HOME": str(self.path)},
            "stdin": subprocess.DEVNULL,
        }

    def _moved(self, text: str) -> str:
        """Replace the port of the pages by that of the application."""
        return text.replace("8080", str(self.port))

    def _shorten(self) -> None:
        for name, count in LINES.items():
            for path in self.path.glob(f"{name}.??"):
                lines = path.read_text(encoding="utf-8").splitlines()
                path.write_text(_text(lines[:count]), encoding="utf-8")


def _text(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


def test_other_how_to_pages_say_why_they_are_not_run() -> None:
    nav = re.search(
        r"  - How-to guides:\n(.*?)  - Concepts:", (ROOT / "mkdocs.yml").read_text(), re.S
    )
    assert nav is not None
    pages = re.findall(r"([\w/-]+)\.md", nav[1])
    assert pages
    assert {page for page in OUTPUTS if page.startswith("how-to/")} <= set(pages)
    for page in set(pages) - set(OUTPUTS):
        found = list(blocks(ROOT / "docs" / f"{page}.md"))
        assert found, page
        assert all(block.not_run for block in found), page


def test_tutorial_goes_from_text_to_a_served_translation(clone: Clone) -> None:
    clone.follow("get-started/tutorial")
    assert len((clone.path / "test.out").read_text().splitlines()) == LINES["test"]
    assert (clone.path / "export" / "models" / "en_de" / "1" / "saved_model.pb").is_file()


@pytest.mark.parametrize("page", OUTPUTS)
def test_page_commands_run_after_the_tutorial(
    clone: Clone, page: str, tiny_run: Path, tiny_export: Path
) -> None:
    _with_short_sources(shutil.copytree(tiny_run, clone.path / "runs" / "my-en-de"))
    shutil.copytree(tiny_export, clone.path / "export" / "models" / "en_de")
    (clone.path / "my.yaml").write_text("{}")  # shorter settings are passed anyway
    pairs = grammar.pairs("train")
    for name, count in LINES.items():
        english, german = zip(*islice(pairs, count), strict=True)
        for language, lines in ("en", english), ("de", german):
            (clone.path / f"{name}.{language}").write_text(_text(lines), encoding="utf-8")
    (clone.path / "mono.en").unlink()
    clone.follow(page)
    assert (clone.path / OUTPUTS[page]).exists()


def _with_short_sources(run: Path) -> None:
    """Lower a limit of a run, so that a LiteRT export has few graphs."""
    config = run / "config.yaml"
    text = config.read_text()
    shorter = text.replace("max_source_length: 64", "max_source_length: 12")
    assert shorter != text
    config.write_text(shorter)


@pytest.mark.parametrize("page", PLOTS)
def test_page_about_the_model_writes_its_file(clone: Clone, page: str) -> None:
    clone.follow(page)
    assert (clone.path / PLOTS[page]).exists()
