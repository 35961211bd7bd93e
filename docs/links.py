"""MkDocs hook for links from pages to files outside docs/.

On a code host, a link to `../../tfnmt/errors.py` leads to the file. On the site it leads to the
repository if mkdocs.yml has a `repo_url`. Otherwise only its text remains. A missing file is a
warning, which is an error in a strict build.
"""

import logging
import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+[^)#]+)(#[^)]*)?\)")

logger = logging.getLogger("mkdocs.hooks.links")


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Replace links of a page that lead out of docs/.

    Args:
        markdown: The text of the page.
        page: The page of MkDocs. Its `file.src_uri` is relative to docs/.
        config: The configuration of MkDocs.
    """
    folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri))

    def replace(link: re.Match[str]) -> str:
        text, target, anchor = link.groups(default="")
        path = posixpath.normpath(posixpath.join(folder, target))
        if path.startswith("docs/"):
            return link[0]
        if not (ROOT / path).exists():
            logger.warning("%s: %s does not exist", page.file.src_uri, path)
        if not config["repo_url"]:
            return text
        return f"[{text}]({config['repo_url'].rstrip('/')}/blob/main/{path}{anchor})"

    return LINK.sub(replace, markdown)
