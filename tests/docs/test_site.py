"""The site builds from the pages without a warning."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs import links
from tests.docs.pages import PAGES, ROOT


class Page:
    """The attributes of a MkDocs page that the hook reads."""

    class file:  # noqa: N801
        src_uri = "reference/page.md"


def test_site_builds_strictly(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", f"--site-dir={tmp_path}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "get-started" / "tutorial" / "index.html").is_file()
    assert not list(tmp_path.rglob("*.py"))


def test_link_to_code_leads_to_the_repository_or_becomes_text() -> None:
    text = "See [the flags](../../tfnmt/cli.py) and [results](../../README.md#results)."
    assert links.on_page_markdown(text, Page(), {"repo_url": None}) == "See the flags and results."
    assert links.on_page_markdown(text, Page(), {"repo_url": "https://a.org/b/"}) == (
        "See [the flags](https://a.org/b/blob/main/tfnmt/cli.py) and "
        "[results](https://a.org/b/blob/main/README.md#results)."
    )


def test_link_between_pages_stays(caplog: pytest.LogCaptureFixture) -> None:
    text = "[Train](../how-to/train.md#resume)"
    assert links.on_page_markdown(text, Page(), {"repo_url": None}) == text
    assert not caplog.text


def test_link_to_missing_file_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    links.on_page_markdown("[gone](../../gone.py)", Page(), {"repo_url": None})
    assert "gone.py does not exist" in caplog.text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_linked_files_exist(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)(?:#\S*)?\)", page.read_text(encoding="utf-8"))
    missing = [link for link in links if not (page.parent / link).exists()]
    assert not missing
