"""The fonts at hand, and what of a text they can draw."""

import unicodedata
from collections.abc import Sequence
from functools import cache

import regex
from matplotlib.font_manager import FontProperties, findfont, get_font, get_font_names
from matplotlib.textpath import text_to_path

# The first comes with matplotlib; of the others, what a machine has serves further scripts.
FONTS = (
    "DejaVu Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Microsoft YaHei", "Arial Unicode MS",
    "Noto Sans Devanagari", "Noto Sans Thai", "Noto Emoji",
)  # fmt: skip
UNDRAWABLE = "□"


def drawable(text: str, limit: int) -> str:
    """The text as the fonts at hand can draw it, shortened to that many characters."""
    characters = regex.findall(r"\X", text)
    if len(characters) > limit:
        characters = [*characters[: limit - 1], "…"]
    return "".join(char if _is_drawable(char) else UNDRAWABLE for char in characters)


def width_of(texts: Sequence[str], size: float) -> float:
    """The width in inches of the widest text, in letters of that many points."""
    font = FontProperties(size=size)
    measure = text_to_path.get_text_width_height_descent
    return max(measure(text, font, ismath=False)[0] for text in texts) / 72


@cache
def charsets() -> dict[str, frozenset[int]]:
    """The code points of each of our fonts that this machine has."""
    installed = {*get_font_names(), FONTS[0]}
    return {
        font: frozenset(get_font(findfont(FontProperties(family=font))).get_charmap())
        for font in FONTS
        if font in installed
    }


def _is_drawable(character: str) -> bool:
    """Whether one font has all code points of what a reader takes for one character."""
    if any(unicodedata.category(point) == "Cc" for point in character):
        return False
    return any(charset.issuperset(map(ord, character)) for charset in charsets().values())
