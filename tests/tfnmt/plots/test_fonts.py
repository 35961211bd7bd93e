from collections.abc import Iterator

import pytest
from matplotlib.figure import Figure

from tfnmt.plots import fonts
from tfnmt.plots.fonts import drawable, width_of
from tfnmt.plots.style import styled, to_png


def test_long_texts_end_in_an_ellipsis() -> None:
    family = "👨‍👩‍👧"  # one character to a reader, five code points
    assert drawable("▁Donaudampfschiff", 14) == "▁Donaudampfsc…"
    assert drawable("▁dampfschiffe_", 14) == "▁dampfschiffe_"
    assert drawable(14 * family, 14) == 14 * "□"


def test_what_no_font_has_is_a_box_a_character() -> None:
    shown = [drawable(text, 14) for text in ("▁你好a", "a\nb", "▁مرحبا")]
    assert shown == ["▁□□a", "a□b", "▁مرحبا"]


def test_control_characters_are_not_left_to_fonts_that_claim_to_have_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fonts, "charsets", lambda: {"DejaVu Sans": frozenset(range(128))})
    assert [drawable(text, 14) for text in ("a\nb", "\x00")] == ["a□b", "□"]


@pytest.fixture
def stix_too(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A second font, which comes with matplotlib, and one that no machine has."""
    monkeypatch.setattr(fonts, "FONTS", ("DejaVu Sans", "No Such Font", "STIXGeneral"))
    fonts.charsets.cache_clear()
    yield
    fonts.charsets.cache_clear()


@pytest.mark.usefixtures("stix_too")
def test_further_fonts_serve_what_the_first_lacks(caplog: pytest.LogCaptureFixture) -> None:
    dejavu, stix = fonts.charsets().values()
    only_stix = next(filter(str.isprintable, map(chr, sorted(stix - dejavu))))
    assert drawable(only_stix, 14) == only_stix
    with styled():
        figure = Figure()
        figure.text(0.5, 0.5, only_stix)
    to_png(figure)
    assert not caplog.records  # of fonts or letters that were not found


def test_the_widest_text_counts_and_grows_with_its_letters() -> None:
    assert width_of(["i", "mmm", "m"], 10) == width_of(["mmm"], 10)
    assert width_of(["m"], 20) == pytest.approx(2 * width_of(["m"], 10), rel=0.05)
