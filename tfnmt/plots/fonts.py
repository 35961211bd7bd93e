"""Installed fonts, and the characters that they can draw."""

import unicodedata
from collections.abc import Sequence
from functools import cache

import regex
from matplotlib.font_manager import FontProperties, findfont, get_font, get_font_names
from matplotlib.textpath import text_to_path

# The first font comes with matplotlib. The others cover further scripts where installed.
FONTS = (
    "DejaVu Sans",
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Microsoft YaHei",
    "Arial Unicode MS",
    "Noto Sans Devanagari",
    "Noto Sans Thai",
    "Noto Emoji",
)
UNDRAWABLE = "□"


def to_drawable(text: str, limit: int) -> str:
    """Truncate a text, and replace characters that no installed font has.

    Args:
        text: The text.
        limit: Maximum number of characters as a reader counts them (grapheme clusters).
    """
    characters = regex.findall(r"\X", text)
    if len(characters) > limit:
        characters = [*characters[: limit - 1], "…"]
    return "".join(char if _is_drawable(char) else UNDRAWABLE for char in characters)


def text_width(texts: Sequence[str], size: float) -> float:
    """Return the width of the widest text in inches, for a font size in points."""
    font = FontProperties(size=size)
    measure = text_to_path.get_text_width_height_descent
    return max(measure(text, font, ismath=False)[0] for text in texts) / 72


@cache
def charsets() -> dict[str, frozenset[int]]:
    """Return the code points of each of FONTS that is installed."""
    installed = {*get_font_names(), FONTS[0]}
    return {
        font: frozenset(get_font(findfont(FontProperties(family=font))).get_charmap())
        for font in FONTS
        if font in installed
    }


def _is_drawable(character: str) -> bool:
    """Return whether a single font has all code points of a grapheme cluster."""
    if any(unicodedata.category(point) == "Cc" for point in character):
        return False
    return any(charset.issuperset(map(ord, character)) for charset in charsets().values())
