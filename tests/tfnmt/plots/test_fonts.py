from collections.abc import Iterator

import pytest
from matplotlib.figure import Figure

from tfnmt.plots import fonts
from tfnmt.plots.fonts import text_width, to_drawable
from tfnmt.plots.style import styled, to_png


def test_long_texts_are_truncated_with_an_ellipsis() -> None:
    family = "👨‍👩‍👧"  # one character to a reader, five code points
    assert to_drawable("▁Donaudampfschiff", 14) == "▁Donaudampfsc…"
    assert to_drawable("▁dampfschiffe_", 14) == "▁dampfschiffe_"
    assert to_drawable(14 * family, 14) == 14 * "□"


def test_undrawable_characters_become_boxes() -> None:
    shown = [to_drawable(text, 14) for text in ("▁你好a", "a\nb", "▁مرحبا")]
    assert shown == ["▁□□a", "a□b", "▁مرحبا"]


def test_control_characters_become_boxes_even_if_a_font_has_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fonts, "charsets", lambda: {"DejaVu Sans": frozenset(range(128))})
    assert [to_drawable(text, 14) for text in ("a\nb", "\x00")] == ["a□b", "□"]


@pytest.fixture
def stix_fallback(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Add a second font, which comes with matplotlib, and one that does not exist."""
    monkeypatch.setattr(fonts, "FONTS", ("DejaVu Sans", "No Such Font", "STIXGeneral"))
    fonts.charsets.cache_clear()
    yield
    fonts.charsets.cache_clear()


@pytest.mark.usefixtures("stix_fallback")
def test_fallback_fonts_draw_characters_that_the_first_font_lacks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    dejavu, stix = fonts.charsets().values()
    only_stix = next(filter(str.isprintable, map(chr, sorted(stix - dejavu))))
    assert to_drawable(only_stix, 14) == only_stix
    with styled():
        figure = Figure()
        figure.text(0.5, 0.5, only_stix)
    to_png(figure)
    assert not caplog.records  # about missing fonts or characters


def test_text_width_is_that_of_the_widest_text_and_scales_with_the_size() -> None:
    assert text_width(["i", "mmm", "m"], 10) == text_width(["mmm"], 10)
    assert text_width(["m"], 20) == pytest.approx(2 * text_width(["m"], 10), rel=0.05)
