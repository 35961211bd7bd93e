"""Where the pieces of a sentence stand in its text."""

import re
from collections.abc import Sequence

from app.text.sentences import Span

BYTE = re.compile(r"<0x([0-9A-F]{2})>")
END = "</s>"
SPACE = "\u2581"
"""How a piece writes a space."""
UNREAD = 16
"""Bytes that are passed over, at most, where pieces are not as the text is written."""


def locate(pieces: Sequence[str], text: str) -> list[Span]:
    """Places in code points; a piece of bytes has the character that they are a part of.

    A piece that is not in the text, for the model reads it otherwise than it is written, gets an
    empty place where it would stand; those after it are found again a little further on.
    """
    content = text.encode()
    spans: list[Span] = []
    start, lost = 0, False
    for piece in pieces:
        letters = _bytes(piece)
        found = content.find(letters, start) if letters else start
        # Only spaces may lie between pieces: what is found beyond is another of the kind.
        if found < 0 or len(content[start:found].strip()) > (UNREAD if lost else 0):
            found, letters, lost = start, b"", True
        elif letters:
            lost = False
        spans.append(_characters(content, found, found + len(letters)))
        start = found + len(letters)
    return spans


def _bytes(piece: str) -> bytes:
    if byte := BYTE.fullmatch(piece):
        return bytes([int(byte[1], 16)])
    return b"" if piece == END else piece.replace(SPACE, " ").strip(" ").encode()


def _characters(content: bytes, start: int, end: int) -> Span:
    """Bytes as code points; those of a character that is cut belong to it."""
    first = start
    while first and first < len(content) and _continues(content[first]):
        first -= 1
    last = end
    while last > start and last < len(content) and _continues(content[last]):
        last += 1
    before = len(content[:first].decode())
    return Span(before, before + len(content[first:last].decode()))


def _continues(byte: int) -> bool:
    return byte & 0b1100_0000 == 0b1000_0000
