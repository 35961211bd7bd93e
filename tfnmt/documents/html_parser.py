"""Parse HTML. A long page is parsed first in a process with limits.

A page can make a parser create many times as many elements as it has tags, or compare each tag with
all others. Only the parser knows which pages do. So it parses a long page twice: first in a process
whose time and memory are limited, which runs this file as a script.
"""

import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from threading import BoundedSemaphore

from selectolax.lexbor import LexborHTMLParser, LexborNode, SelectolaxError

SPACE = " \t\n\f\r"
COMMENT = re.compile(rf"<!(?=--).*?-->[{SPACE}]*", re.DOTALL)
"""A comment, and white space after it."""

SHORT = 2000
"""Maximum length of a page that is parsed without the process, in characters."""

MAX_GROWTH = 10
"""Characters of the parsed page, written in full, per character of the page."""

FREE_GROWTH = 100_000
"""Characters that the parsed page may have in addition."""

SECONDS, CHARS_PER_SECOND = 1, 2_000_000
"""CPU time limit of the process: SECONDS, plus one second per CHARS_PER_SECOND characters."""

MEMORY, MEMORY_PER_CHAR = 128 << 20, 300
"""Memory limit of the process in bytes: MEMORY, plus MEMORY_PER_CHAR per character."""

PROCESSES = BoundedSemaphore(2)
"""Limits the number of processes, and thus their memory, for a server with many threads."""

REFUSED = 3
"""The exit status for a page that grows too much or takes too much memory."""


def parse(text: str) -> tuple[str, list[LexborNode]]:
    """Parse a page, or a part of one.

    Returns:
        The document type unchanged, or "", and the nodes of the page.

    Raises:
        MemoryError: selectolax returned no node, which it does without memory.
    """
    doctype, is_page = _doctype(text)
    if is_page:
        root = LexborHTMLParser(text).root
        if root is None or root.parent is None:
            raise MemoryError
        return doctype, list(siblings(root.parent.first_child))
    # selectolax takes the first node of a fragment for the whole fragment
    root = LexborHTMLParser("<!---->" + text, is_fragment=True).root
    if root is None:
        raise MemoryError
    return doctype, list(siblings(root))[1:]


def siblings(node: LexborNode | None) -> Iterator[LexborNode]:
    """Yield a node and the nodes after it with the same parent."""
    while node is not None:
        yield node
        node = node.next


def is_too_costly(text: str) -> bool:
    """Return whether a page takes too much time or memory to parse, or has too many elements.

    Raises:
        OSError: The process could not be started.
    """
    if len(text) <= SHORT:
        return False
    # -P: the folder of this file, with its html.py, is not on sys.path.
    command = [sys.executable, "-P", __file__]
    with PROCESSES:
        done = subprocess.run(command, input=text.encode(errors="replace"))
    return done.returncode != 0  # refused, or killed by a signal


def _doctype(text: str) -> tuple[str, bool]:
    """Return the document type unchanged, and whether the text is a whole page."""
    start = len(text) - len(text.lstrip(SPACE + "\ufeff"))
    while comment := COMMENT.match(text, start):
        start = comment.end()
    lowered = text[start : start + 9].lower()
    if lowered == "<!doctype":
        return text[start:].partition(">")[0] + ">", True
    return "", lowered.startswith(("<html", "<head", "<body"))


def main() -> int:
    """Parse the page of stdin with limits, and compare its length with the length of its nodes.

    selectolax reports a lack of memory in several ways. One is a node without HTML.
    """
    text = sys.stdin.buffer.read().decode()
    seconds = SECONDS + len(text) // CHARS_PER_SECOND
    memory = MEMORY + MEMORY_PER_CHAR * len(text)
    _limit(resource.RLIMIT_CPU, seconds)
    _limit(resource.RLIMIT_DATA, memory)
    _limit(resource.RLIMIT_CORE, 0)  # no page on the disk after a crash
    try:
        written = sum(len(_html(node)) for node in parse(text)[1])
    except (MemoryError, RuntimeError, SelectolaxError, SystemError):
        return REFUSED
    return REFUSED if written > FREE_GROWTH + MAX_GROWTH * len(text) else 0


def _html(node: LexborNode) -> str:
    if node.html is None:
        raise MemoryError
    return node.html


def _limit(kind: int, value: int) -> None:
    """Set a limit of this process, unless it is lower already."""
    earlier = (limit for limit in resource.getrlimit(kind) if limit != resource.RLIM_INFINITY)
    lowest = min([value, *earlier])
    resource.setrlimit(kind, (lowest, lowest))


if __name__ == "__main__":
    sys.exit(main())
