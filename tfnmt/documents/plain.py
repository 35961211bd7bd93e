"""Plain text and subtitles."""

import codecs
import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from tfnmt.documents.archive import Limits
from tfnmt.documents.segments import Document, Piece, Segment, text_segment
from tfnmt.errors import UserError

BOMS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}

LINE = re.compile(r"\s*[^\n\r\v\f\x1c-\x1e\x85\u2028\u2029]*")
"""A line of text without its end, and all white space before it."""

FROM_DIGIT_TO_DIGIT = re.compile(r"\d.*\d")

TAG = re.compile(r"</?[\w.:][^<>]*>|\{\\[^{}]*\}")
"""A tag of a subtitle: of HTML, of WebVTT or of SubStation Alpha."""
WORD = re.compile(rf"(?:{TAG.pattern}|\S)+")
"""A word with its tags, which may contain spaces."""

VTT_BLOCKS = ("WEBVTT", "NOTE", "STYLE", "REGION")


def decode(content: bytes, name: str) -> str:
    """Return a text in UTF-8, or in UTF-16 with a byte order mark.

    Raises:
        UserError: The text has another encoding.
    """
    encoding = next((name for mark, name in BOMS.items() if content.startswith(mark)), "utf-8")
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        raise UserError(f"{name}: not UTF-8; save it as UTF-8") from error
    if "\0" in text:
        raise UserError(f"{name}: no text; check the suffix of the name")
    return text


def decode_within(limits: Limits, content: bytes, name: str) -> str:
    """Return a text, most of which is translated; see `decode`.

    The limit of characters is checked here, because the parts of a text need more memory.

    Raises:
        UserError: The text is too long, or has another encoding.
    """
    text = decode(content, name)
    limits.check_characters(len(text), name)
    return text


def read_text(content: bytes, name: str, limits: Limits) -> Document:
    """Read plain text. Each line is a segment, with the blank lines before it.

    Raises:
        UserError: The text is too long, or not UTF-8.
    """
    lines = LINE.findall(decode_within(limits, content, name))
    segments = [text_segment(line) for line in lines if line]
    return Document(
        segments, lambda: "".join(segment.translated_text for segment in segments).encode()
    )


def read_subtitles(content: bytes, name: str, limits: Limits) -> Document:
    """Read SubRip or WebVTT. Times, settings, comments and styles stay unchanged.

    Raises:
        UserError: The file has no subtitles, is too long, or is not UTF-8.
    """
    text = decode_within(limits, content, name)
    newline = "\r\n" if "\r\n" in text else "\n"
    parts: list[str | tuple[Segment, int]] = []
    for blank, group in groupby(text.splitlines(), key=lambda line: not line.strip()):
        lines = list(group)
        head = len(lines) if blank else _head_length(lines)
        parts += lines[:head]
        if cue := lines[head:]:
            parts.append((_cue_segment(cue), len(cue)))
    segments = [part[0] for part in parts if not isinstance(part, str)]
    if not segments and text.strip():
        raise UserError(f"{name}: has no subtitles; check the suffix of the name")
    return Document(segments, lambda: newline.join([*_write(parts), ""]).encode())


def _head_length(lines: Sequence[str]) -> int:
    """Return the number of lines of a block before the text of a subtitle."""
    if lines[0].lstrip("\ufeff").startswith(VTT_BLOCKS):
        return len(lines)
    times = [number for number, line in enumerate(lines[:2]) if _has_times(line)]
    return times[0] + 1 if times else len(lines)


def _has_times(line: str) -> bool:
    """Return whether a line has an arrow between digits, as the times of a subtitle have."""
    match = FROM_DIGIT_TO_DIGIT.search(line)
    return match is not None and "-->" in match[0]


def _cue_segment(lines: Sequence[str]) -> Segment:
    """Return the text of a subtitle, whose lines are one text. Tags are objects in it."""
    text = " ".join(line.strip() for line in lines)
    pieces, end = [], 0
    for tag in TAG.finditer(text):
        pieces += [Piece(text[end : tag.start()]), Piece("", (), tag[0])]
        end = tag.end()
    return Segment([piece for piece in (*pieces, Piece(text[end:])) if piece != Piece("")])


def _write(parts: Sequence[str | tuple[Segment, int]]) -> Iterator[str]:
    for part in parts:
        if isinstance(part, str):
            yield part
            continue
        segment, count = part
        text = "".join(
            piece.text if piece.atom is None else piece.atom for piece in segment.translation
        )
        yield from _wrap(text, count)


def _wrap(text: str, count: int) -> Iterator[str]:
    """Divide a text into lines of similar length, as many as the source has."""
    words = [word[0] for word in WORD.finditer(text)]
    lengths = [len(TAG.sub("", word)) + 1 for word in words]
    line: list[str] = []
    wanted, length = sum(lengths) / count, 0.0
    for word, added in zip(words, lengths, strict=True):
        if line and count > 1 and length + added / 2 > wanted:
            yield " ".join(line)
            line, length, count = [], length - wanted, count - 1
        line.append(word)
        length += added
    yield " ".join(line)
