"""The commands of the tutorial and of the how-to pages, run as they stand, one after another.

In a clone of its own whose python makes models small and trainings short. What a page says that it
cannot run here (`<!-- not run: why -->`) is only checked for its flags, in
tests/docs/test_commands.py.
"""

import os
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

from tests.docs.pages import ROOT, blocks
from tfnmt.data import toy

PAGES = (
    "tutorial", "fine-tune", "language-pair", "back-translate", "distil", "reproduce", "comet",
    "serve",
)  # fmt: skip
"""In this order: all begin where the tutorial ends."""

LINES = {"my": 600, "dev": 20, "test": 20, "mono": 40, "new": 40}
"""Of the texts, so many lines are kept; the last two are the reader's own, and made here."""

TINY = {
    "tokenizer.vocab_size": 400, "model.num_encoder_layers": 1, "model.num_decoder_layers": 1,
    "model.d_model": 16, "model.d_ff": 32, "training.max_steps": 10, "training.warmup_steps": 5,
    "training.checkpoint_steps": 5, "training.validation_steps": 5, "training.average_last": 2,
    "decoding.max_extra_length": 5, "decoding.max_source_length": 64,
}  # fmt: skip

PYTHON = """\
#!/bin/sh
case "$2" in
tfnmt.train | tfnmt.prepare) set -- "$@" {settings} ;;
app) set -- "$@" --port=8080 ;;
esac
exec "{python}" "$@"
"""


class Clone:
    """A folder in which the blocks of pages are run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.port = _free_port()
        for name in ("tfnmt", "app", "configs"):
            shutil.copytree(ROOT / name, path / name)
        shutil.copy(ROOT / "pyproject.toml", path)
        settings = " ".join(f"--set={key}={value}" for key, value in TINY.items())
        python = path / ".venv" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(self._moved(PYTHON.format(settings=settings, python=sys.executable)))
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


@pytest.mark.slow
def test_the_commands_of_the_tutorial_and_of_the_how_to_pages_do_their_work(
    tmp_path: Path,
) -> None:
    clone = Clone(tmp_path)
    english, german = zip(*islice(toy.pairs("train"), 100), strict=True)
    for name, lines in ("new.en", english), ("new.de", german), ("mono.de", german):
        (tmp_path / name).write_text(_text(lines), encoding="utf-8")
    for page in PAGES:
        clone.follow(page)
    # What the pages promise to be there.
    assert len((tmp_path / "test.out").read_text().splitlines()) == LINES["test"]
    assert len((tmp_path / "mono.en").read_text().splitlines()) == LINES["mono"]
    for run in ("my-en-de", "fine-tuned", "backwards", "with-mono", "small", "again"):
        assert (tmp_path / "runs" / run / "summary.json").is_file()
    assert (tmp_path / "my-en-de.tar.gz").is_file()
    assert (tmp_path / "export" / "models" / "en_de" / "1" / "saved_model.pb").is_file()
    assert (tmp_path / "export" / "ctranslate2" / "en_de" / "model.bin").is_file()
