import io
import subprocess
import sys
from itertools import combinations, pairwise
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import imread

from tfnmt.plots.attention import COLORMAP, draw_attention
from tfnmt.plots.style import to_png, to_svg

QUERIES = ["▁Ein", "▁Hund", "</s>"]
KEYS = ["▁A", "▁d", "og", "</s>"]

UNUSUAL_TEXTS = [
    *("", "▁", " ", "▁שלום", "▁مرحبا", "▁你好", "नमस्ते", "ไทย"),
    *("👨‍👩‍👧", "🇨🇭", "❤️", "\u200d", "e\u0301\u0302"),
    *("$x^2$", "$", "$\\frac$", "a\nb", "\r\n", "\t", "\x00", "\ud83d", "\uffff"),
    *("--><&\"'", "<0x0A>", "\u202eabc"),
]


def some_weights(num_heads: int, queries: int, keys: int, seed: int = 0) -> np.ndarray:
    """Return weights [H, T, S] between 0 and 1; the heads have different maxima."""
    weights = np.random.default_rng(seed).random([num_heads, queries, keys])
    return weights * np.linspace(0.3, 1, num_heads)[:, None, None]


def draw(num_heads: int, queries: int = 3, keys: int = 4) -> Figure:
    weights = some_weights(num_heads, queries, keys)
    return draw_attention(weights, ["▁row"] * queries, ["▁column"] * keys, "A title")


def panels(figure: Figure) -> list[Axes]:
    *heads, _ = figure.axes
    return heads


def cell_colors(figure: Figure) -> np.ndarray:
    """Return the middle pixel of each cell of the plot, [H, T, S, 3], 0 to 255."""
    pixels = np.round(imread(io.BytesIO(to_png(figure)))[..., :3] * 255).astype(int)
    height, width, _ = pixels.shape
    heads = []
    for axes in panels(figure):
        rows, columns = axes.images[0].get_array().shape
        box = axes.get_position()
        y = height * (1 - box.y1 + box.height * (np.arange(rows) + 0.5) / rows)
        x = width * (box.x0 + box.width * (np.arange(columns) + 0.5) / columns)
        heads.append(pixels[np.ix_(y.astype(int), x.astype(int))])
    return np.stack(heads)


def row_names(axes: Axes) -> list[str]:
    return [label.get_text() for label in axes.get_yticklabels()]


def column_names(axes: Axes) -> list[str]:
    return [label.get_text() for label in axes.get_xticklabels()]


def test_one_hot_weights_give_one_dark_cell() -> None:
    weights = np.zeros([2, 3, 4])
    weights[0, 2, 1] = weights[1, 0, 3] = 1
    dark = cell_colors(draw_attention(weights, QUERIES, KEYS, "")).mean(-1) < 80
    np.testing.assert_array_equal(dark, weights == 1)


@pytest.mark.parametrize("num_heads", [1, 5])
def test_cell_colors_have_one_scale_for_all_heads(num_heads: int) -> None:
    weights = some_weights(num_heads, 3, 4)
    colors = cell_colors(draw_attention(weights, QUERIES, KEYS, "A title"))
    np.testing.assert_allclose(colors, COLORMAP(weights)[..., :3] * 255, atol=1)


def test_colors_start_white_and_change_in_equal_perceived_steps() -> None:
    colors = COLORMAP(np.arange(256))[:, :3]
    np.testing.assert_array_equal(colors[0], [1, 1, 1])
    # Björn Ottosson's OKLab: https://bottosson.github.io/posts/oklab/
    to_cones = [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
    to_lab = [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
    light = np.where(colors <= 0.04045, colors / 12.92, ((colors + 0.055) / 1.055) ** 2.4)
    steps = np.diff(np.cbrt(light @ np.transpose(to_cones)) @ np.transpose(to_lab), axis=0)
    assert (steps[:, 0] < 0).all()
    lengths = np.linalg.norm(steps, axis=1)
    np.testing.assert_allclose(lengths, lengths.mean(), rtol=0.1)


def test_nan_weights_are_drawn_red() -> None:
    weights = np.zeros([1, 3, 4])
    weights[0, 1, 2] = np.nan
    red, green, blue = cell_colors(draw_attention(weights, QUERIES, KEYS, ""))[0, 1, 2]
    assert red > 2 * green
    assert red > 2 * blue


@pytest.mark.parametrize(
    ("num_heads", "rows"), [(1, [1]), (2, [2]), (4, [2, 2]), (7, [4, 3]), (8, [4, 4])]
)
def test_heads_form_a_grid_in_reading_order(num_heads: int, rows: list[int]) -> None:
    figure = draw(num_heads, queries=10, keys=10)
    corners = [(-axes.get_position().y0, axes.get_position().x0) for axes in panels(figure)]
    assert corners == sorted(corners)
    heights = [height for height, _ in corners]
    assert [heights.count(height) for height in dict.fromkeys(heights)] == rows
    assert len(figure.axes) == num_heads + 1  # plus one color bar


def test_heads_count_from_one() -> None:
    assert [axes.get_xlabel() for axes in panels(draw(3))] == ["head 1", "head 2", "head 3"]


def test_captions_replace_the_head_numbers() -> None:
    weights, captions = some_weights(2, 3, 4), ["reference", "bug"]
    figure = draw_attention(weights, QUERIES, KEYS, "", captions)
    assert [axes.get_xlabel() for axes in panels(figure)] == captions


def test_single_head_is_larger_and_has_no_caption() -> None:
    def width(figure: Figure) -> float:
        return panels(figure)[0].get_position().width * figure.get_figwidth()

    single, many = draw(1), draw(2)
    assert panels(single)[0].get_xlabel() == ""
    assert width(single) > 1.3 * width(many)


def test_tokens_label_only_the_outer_panels() -> None:
    figure = draw_attention(some_weights(4, 3, 4), QUERIES, KEYS, "A title")
    heads = panels(figure)
    assert [row_names(axes) for axes in heads] == [QUERIES, [], QUERIES, []]
    assert [column_names(axes) for axes in heads] == [KEYS, KEYS, [], []]
    assert [text.get_text() for text in figure.texts] == ["A title"]


def test_labels_are_aligned_with_their_cells() -> None:
    figure = draw_attention(some_weights(1, 3, 4), list("xxx"), list("xxxx"), "")
    figure.draw_without_rendering()
    (axes,) = panels(figure)
    box = axes.get_window_extent()
    rows = [label.get_window_extent() for label in axes.get_yticklabels()]
    columns = [label.get_window_extent() for label in axes.get_xticklabels()]
    cell = box.width / 4
    for index, row in enumerate(rows):
        assert row.x1 < box.x0
        assert abs(box.y1 - (index + 0.5) * cell - (row.y0 + row.y1) / 2) < 0.1 * cell
    for index, column in enumerate(columns):
        assert column.y0 > box.y1
        assert abs(box.x0 + (index + 0.5) * cell - (column.x0 + column.x1) / 2) < 0.1 * cell


def test_word_boundary_mark_does_not_shift_the_label() -> None:
    figure = draw_attention(some_weights(1, 1, 2), ["x"], ["x", "▁x"], "")
    figure.draw_without_rendering()
    (axes,) = panels(figure)
    unmarked, marked = (label.get_window_extent().x0 for label in axes.get_xticklabels())
    assert marked - unmarked == pytest.approx(axes.get_window_extent().width / 2, abs=0.5)


def test_labels_are_truncated_and_undrawable_characters_replaced() -> None:
    figure = draw_attention(some_weights(1, 2, 1), ["▁Donaudampfschiff", "a\nb"], ["a"], "")
    assert row_names(panels(figure)[0]) == ["▁Donaudampfsc…", "a□b"]


def test_unusual_texts_give_valid_files_without_warnings() -> None:
    weights = some_weights(1, len(UNUSUAL_TEXTS), len(UNUSUAL_TEXTS))
    figure = draw_attention(weights, UNUSUAL_TEXTS, UNUSUAL_TEXTS, "".join(UNUSUAL_TEXTS))
    assert to_png(figure).startswith(b"\x89PNG")
    ElementTree.fromstring(to_svg(figure))


@pytest.mark.parametrize(
    ("num_heads", "queries", "keys"), [(1, 1, 1), (8, 30, 30), (6, 3, 60), (2, 200, 9)]
)
def test_all_parts_fit_the_figure_and_do_not_overlap(
    num_heads: int, queries: int, keys: int
) -> None:
    figure = draw_attention(
        some_weights(num_heads, queries, keys),
        ["▁Wasserstand"] * queries,
        ["▁Nachmittag"] * keys,
        "title",
    )
    figure.draw_without_rendering()
    width, height = figure.get_size_inches()
    inner = figure.get_tightbbox()
    assert inner.x0 >= 0
    assert inner.y0 >= 0
    assert inner.x1 <= width
    assert inner.y1 <= height
    parts = [part.get_tightbbox() for part in [*figure.axes, *figure.texts]]
    assert not any(part.overlaps(other) for part, other in combinations(parts, 2))
    rows = panels(figure)[0].get_yticklabels()
    letters = rows[0].get_fontsize() / 72 * figure.dpi
    for upper, lower in pairwise(rows):
        assert upper.get_window_extent().y0 > lower.get_window_extent().y0 + letters


def test_long_title_widens_the_figure_up_to_a_limit() -> None:
    titles = [title * 1000 for title in ("", "m")]
    narrow, wide = (draw_attention(np.ones([1, 1, 1]), ["a"], ["b"], title) for title in titles)
    assert narrow.get_figwidth() < 3
    assert 10 < wide.get_figwidth() < 25
    assert wide.get_tightbbox().x1 <= wide.get_figwidth()


def test_figure_grows_with_the_sentences_up_to_a_limit() -> None:
    small, medium, large = (draw(4, size, size).get_size_inches() for size in (5, 20, 150))
    assert (small < 5).all()
    assert (2 * small < medium).all()
    assert (medium < large).all()
    assert (large < [24, 17]).all()
    assert draw(4, 2, 400).get_figwidth() < 24


def test_module_does_not_import_pyplot() -> None:
    program = "import sys, tfnmt.plots.attention; sys.exit('matplotlib.pyplot' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("shape", [(3, 4), (1, 4, 3), (2, 3, 3), (0, 3, 4), (1, 3, 4, 1)])
def test_weights_of_another_shape_are_rejected(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="3 queries, 4 keys"):
        draw_attention(np.zeros(shape), QUERIES, KEYS, "")


def test_float16_weights_are_drawn() -> None:
    weights = np.array([[[0.25, 0.75]]], np.float16)
    colors = cell_colors(draw_attention(weights, ["a"], ["b", "c"], ""))
    np.testing.assert_allclose(colors, COLORMAP(weights.astype(float))[..., :3] * 255, atol=1)
