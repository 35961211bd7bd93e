"""Positions of tokens in the text of a sentence."""

import re
from collections.abc import Sequence

from tfnmt.documents.sentences import Span

BYTE = re.compile(r"<0x([0-9A-F]{2})>")
"""A byte token of SentencePiece's byte fallback."""
EOS = "</s>"
LANGUAGE = re.compile(r"<2\w+>")
"""The token of a target language, which has no letters in the text. It can only be the first one,
where a token of the text begins with SPACE."""
SPACE = "\u2581"
"""The character that stands for a space in a token."""
MAX_SKIPPED_BYTES = 16
"""Maximum bytes to skip after a token that was not found in the text."""


def locate_tokens(tokens: Sequence[str], text: str) -> list[Span]:
    """Return the position of each token in code points.

    A byte token gets the position of the character that it is a part of. A token that is not in
    the text, because the model normalizes the text, gets an empty span at its expected position.
    The search for the next tokens may then skip up to MAX_SKIPPED_BYTES.
    """
    if tokens and LANGUAGE.fullmatch(tokens[0]):
        return [Span(0, 0), *locate_tokens(tokens[1:], text)]
    content = text.encode()
    spans: list[Span] = []
    start, lost = 0, False
    for token in tokens:
        letters = _bytes(token)
        found = content.find(letters, start) if letters else start
        # Only spaces may separate tokens. A match further on is another occurrence.
        if found < 0 or len(content[start:found].strip()) > (MAX_SKIPPED_BYTES if lost else 0):
            found, letters, lost = start, b"", True
        elif letters:
            lost = False
        spans.append(_characters(content, found, found + len(letters)))
        start = found + len(letters)
    return spans


def _bytes(token: str) -> bytes:
    if byte := BYTE.fullmatch(token):
        return bytes([int(byte[1], 16)])
    return b"" if token == EOS else token.replace(SPACE, " ").strip(" ").encode()


def _characters(content: bytes, start: int, end: int) -> Span:
    """Convert a span of bytes to code points; include all of a character that is partly in it."""
    first = start
    while first and first < len(content) and _continues(content[first]):
        first -= 1
    last = end if end > start else first  # nothing is empty, also within a character
    while last > start and last < len(content) and _continues(content[last]):
        last += 1
    before = len(content[:first].decode())
    return Span(before, before + len(content[first:last].decode()))


def _continues(byte: int) -> bool:
    """Return whether a byte continues a character in UTF-8."""
    return byte & 0b1100_0000 == 0b1000_0000
