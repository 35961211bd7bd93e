"""The commands of the pages that people follow, run as they stand, one after another.

In a clone of its own, whose python makes models small and trainings short. What a page says that it
cannot run here (`<!-- not run: why -->`) is only checked for its flags, in
tests/docs/test_commands.py.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import TINY, settings
from tests.docs.pages import ROOT, blocks
from tfnmt.data.corpora.toy import grammar

HOW_TO = {
    "text": ".cache/prepared",
    "train": "runs/another/averaged",
    "translate": "lines.de",
    "python": "answers.tsv",
    "fine-tune": "runs/fine-tuned/summary.json",
    "language-pair": ".cache/prepared",
    "back-translate": "runs/with-mono/summary.json",
    "distil": "runs/small/summary.json",
    "diversify": "runs/diversified/summary.json",
    "reproduce": "my-en-de.tar.gz",
    "comet": "test.out",
    "serve": "export/ctranslate2/en_de/model.bin",
}
"""What each of the pages leaves behind."""

LOOKING = {"questions": "trace.html", "pictures": "schedule.png"}
"""What the pages leave behind that look into a model."""

LINES = {"my": 400, "dev": 20, "test": 20, "mono": 40, "new": 40}
"""So many lines of each text are there, or are kept."""

PYTHON = """\
#!/bin/sh
case "$2" in
tfnmt.train | tfnmt.prepare) set -- "$@" {settings} ;;
tfnmt.translate) set -- "$@" --prefix=Der ;;
app) set -- "$@" --port=8080 ;;
esac
exec "{python}" "$@"
"""
"""The clone's own: a model that has learnt next to nothing would say nothing, too."""


class Clone:
    """A folder in which the blocks of pages are run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.port = _free_port()
        for name in ("tfnmt", "app", "configs"):
            shutil.copytree(ROOT / name, path / name)
        shutil.copy(ROOT / "pyproject.toml", path)
        shorter = " ".join(settings(TINY))
        python = path / ".venv" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(self._moved(PYTHON.format(settings=shorter, python=sys.executable)))
        python.chmod(0o755)
        (path / ".curlrc").write_text('fail\nsilent\nnoproxy = "*"\n')

    def follow(self, page: str) -> None:
        """Runs the blocks of a page in order; an application runs until the page ends."""
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
                process.terminate()
                process.wait(60)

    def _run(self, text: str) -> None:
        shell = self._shell(text)
        done = subprocess.run(**shell, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert done.returncode == 0, f"{text}\n{done.stdout}"

    def _serve(self, text: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(**self._shell(f"exec {text}"))
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
        """What runs a text; a mistake in any of its lines ends it."""
        return {
            "args": ["bash", "-e", "-c", self._moved(text)], "cwd": self.path, "text": True,
            "env": os.environ | {"CURL_HOME": str(self.path)}, "stdin": subprocess.DEVNULL,
        }  # fmt: skip

    def _moved(self, text: str) -> str:
        """The port of the pages may be taken."""
        return text.replace("8080", str(self.port))

    def _shorten(self) -> None:
        for name, count in LINES.items():
            for path in self.path.glob(f"{name}.??"):
                lines = path.read_text(encoding="utf-8").splitlines()
                path.write_text(_text(lines[:count]), encoding="utf-8")


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _text(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


def test_the_other_how_to_pages_say_why_they_are_not_run() -> None:
    nav = re.search(r"  - How-to:\n(.*?)  - Reference:", (ROOT / "mkdocs.yml").read_text(), re.S)
    assert nav is not None
    pages = re.findall(r"([\w-]+)\.md", nav[1])
    assert pages
    assert set(HOW_TO) <= set(pages)
    for page in set(pages) - set(HOW_TO):
        found = list(blocks(ROOT / "docs" / f"{page}.md"))
        assert found, page
        assert all(block.not_run for block in found), page


@pytest.mark.slow
def test_the_tutorial_goes_from_text_to_an_answer(clone: Clone) -> None:
    clone.follow("tutorial")
    assert len((clone.path / "test.out").read_text().splitlines()) == LINES["test"]
    assert (clone.path / "export" / "models" / "en_de" / "1" / "saved_model.pb").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("page", HOW_TO)
def test_a_how_to_page_goes_on_where_the_tutorial_ends(
    clone: Clone, page: str, tiny_run: Path, tiny_export: Path
) -> None:
    shutil.copytree(tiny_run, clone.path / "runs" / "my-en-de")
    shutil.copytree(tiny_export, clone.path / "export" / "models" / "en_de")
    (clone.path / "my.yaml").write_text("{}")  # what the tutorial sets is set shorter anyway
    pairs = grammar.pairs("train")
    for name, count in LINES.items():
        english, german = zip(*islice(pairs, count), strict=True)
        for language, lines in ("en", english), ("de", german):
            (clone.path / f"{name}.{language}").write_text(_text(lines), encoding="utf-8")
    (clone.path / "mono.en").unlink()
    clone.follow(page)
    assert (clone.path / HOW_TO[page]).exists()


@pytest.mark.slow
@pytest.mark.parametrize("page", LOOKING)
def test_a_page_that_looks_into_a_model_leaves_its_file(clone: Clone, page: str) -> None:
    clone.follow(page)
    assert (clone.path / LOOKING[page]).exists()
