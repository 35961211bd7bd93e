"""A hook of MkDocs: what the pages say of files that are not on the site.

On a code host a link to `../tfnmt/config.py` leads to the file. On the site it leads to the same
file there, if mkdocs.yml names a `repo_url`; else only its text is left. A file that is not there
is a warning, which a strict build takes for an error.
"""

import logging
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\[([^\]]*)\]\(\.\./([^)#]+)(#[^)]*)?\)")

logger = logging.getLogger("mkdocs.hooks.links")


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """The page, its links to files outside of docs/ mended."""

    def mended(link: re.Match[str]) -> str:
        text, path, place = link.groups(default="")
        if not (ROOT / path).exists():
            logger.warning("%s: %s is not there", page.file.src_uri, path)
        if not config["repo_url"]:
            return text
        return f"[{text}]({config['repo_url'].rstrip('/')}/blob/main/{path}{place})"

    return LINK.sub(mended, markdown)
