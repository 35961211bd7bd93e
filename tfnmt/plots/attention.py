"""Attention weights as heat maps, one panel per head."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from tfnmt.plots.fonts import text_width, to_drawable
from tfnmt.plots.style import HAIRLINE, TEXT_SIZE, TITLE_SIZE, styled

# White to dark blue in steps of equal perceived size (equal in OKLab). Red marks NaN.
COLORMAP = LinearSegmentedColormap.from_list(
    "attention",
    [
        "#ffffff",
        "#c6e9ff",
        "#91d0f9",
        "#5fb3ea",
        "#3495d5",
        "#1176ba",
        "#08579b",
        "#153a79",
        "#1a1e56",
    ],
).with_extremes(bad="#d62728")

MAX_LABEL = 14  # characters as a reader counts them (grapheme clusters)
MAX_TITLE = 100

# Sizes in inches.
MAX_CELLS = 20.0, 14.0  # width and height of all cells together
MAX_CELL = 0.24
MAX_SINGLE_CELL = 0.36  # with a single head
GAP = 0.2  # between panels, and around the figure
PAD = 0.06  # between a label and its cell
TITLE = 0.36  # height of the title
CAPTION = 0.18  # height of the caption below a panel
BAR_WIDTH = 0.14
BAR_HEIGHTS = 1.3, 2.4  # minimum and maximum
BAR_LABELS = 0.6  # width of its tick labels, its name, and the margin

# Sizes in points.
LABEL_SIZES = 6.0, 10.0  # minimum and maximum
LINE_HEIGHT = 1.16  # relative to the font size

Box = tuple[float, float, float, float]
"""Left, bottom, width and height, as fractions of the figure."""


def draw_attention(
    weights: np.ndarray,
    queries: Sequence[str],
    keys: Sequence[str],
    title: str,
    captions: Sequence[str] = (),
) -> Figure:
    """Draw all heads of a layer side by side, with one color scale.

    Args:
        weights: [H, T, S] attention weights.
        queries: T tokens, the labels of the rows.
        keys: S tokens, the labels of the columns.
        title: Title of the figure.
        captions: H captions of the panels; the default is "head 1", "head 2", ...

    Raises:
        ValueError: If the shape of the weights does not match the labels, or an axis is empty.
    """
    if 0 in weights.shape or weights.shape[1:] != (len(queries), len(keys)):
        raise ValueError(f"{len(queries)} queries, {len(keys)} keys, weights {weights.shape}")
    rows, columns = ([to_drawable(token, MAX_LABEL) for token in side] for side in (queries, keys))
    title = to_drawable(title, MAX_TITLE)
    captions = captions or [f"head {head}" for head in range(1, len(weights) + 1)]
    with styled():
        layout = _lay_out(len(weights), rows, columns, title)
        figure = Figure(figsize=layout.figure)
        for head, matrix in enumerate(weights):
            axes = figure.add_axes(layout.panel_box(head))
            image = _draw_head(axes, matrix, layout.cell)
            # Only the outer panels have labels; the others are aligned with them.
            outer_rows = rows if head % layout.across == 0 else []
            outer_columns = columns if head < layout.across else []
            _label(axes, outer_rows, outer_columns, layout.cell)
            if len(weights) > 1:
                axes.set_xlabel(captions[head], size=TEXT_SIZE)
        _draw_bar(figure, image, layout)
        figure.text(*layout.title_point(), title, size=TITLE_SIZE, va="top")
    return figure


class _Layout(NamedTuple):
    """Sizes and positions in inches, from the upper left corner of the figure."""

    across: int  # panels per row
    cell: float  # width and height of a cell
    panel: tuple[float, float]  # width and height
    left: float  # distance from the figure to the first panel
    top: float
    caption: float  # height below each panel
    bar_height: float
    figure: tuple[float, float]  # width and height

    def panel_box(self, head: int) -> Box:
        """Return the box of a head's panel."""
        down, across = divmod(head, self.across)
        width, height = self.panel
        x = self.left + across * (width + GAP)
        y = self.top + down * (height + self.caption + GAP)
        return self._box(x, y, width, height)

    def bar_box(self) -> Box:
        """Return the box of the color bar, right of the panels."""
        x = self.left + self.across * (self.panel[0] + GAP)
        return self._box(x, self.top, BAR_WIDTH, self.bar_height)

    def title_point(self) -> tuple[float, float]:
        """Return the upper left corner of the title."""
        return self._box(GAP, GAP, 0, 0)[:2]

    def _box(self, x: float, y: float, width: float, height: float) -> Box:
        """Convert inches to fractions of the figure. The origin of matplotlib is the lower left."""
        all_x, all_y = self.figure
        return x / all_x, 1 - (y + height) / all_y, width / all_x, height / all_y


def _lay_out(num_heads: int, rows: Sequence[str], columns: Sequence[str], title: str) -> _Layout:
    """Lay out the smallest figure that fits all parts."""
    across = _panels_across(num_heads, len(rows), len(columns))
    down = math.ceil(num_heads / across)
    cell = min(
        MAX_CELL if num_heads > 1 else MAX_SINGLE_CELL,
        MAX_CELLS[0] / (across * len(columns)),
        MAX_CELLS[1] / (down * len(rows)),
    )
    width, height = cell * len(columns), cell * len(rows)
    left = GAP + text_width(rows, _label_size(cell)) + PAD
    top = GAP + TITLE + text_width(columns, _label_size(cell)) + PAD
    caption = CAPTION if num_heads > 1 else 0
    bar_height = min(max(height, BAR_HEIGHTS[0]), BAR_HEIGHTS[1])
    right = left + across * (width + GAP) + BAR_WIDTH + BAR_LABELS
    bottom = top + max(down * (height + caption + GAP), bar_height + GAP)
    right = max(right, GAP + text_width([title], TITLE_SIZE) + GAP)
    return _Layout(across, cell, (width, height), left, top, caption, bar_height, (right, bottom))


def _panels_across(num_heads: int, height: int, width: int) -> int:
    """Return the number of panels per row, for panels of `height` by `width` cells."""

    def penalty(across: int) -> float:
        """Measure the distance from an aspect ratio of 1.6, and the share of empty places."""
        down = math.ceil(num_heads / across)
        return abs(math.log(across * width / (down * height) / 1.6)) + across * down / num_heads

    return min(range(1, num_heads + 1), key=penalty)


def _label_size(cell: float) -> float:
    """Return the font size in points for cells of that size in inches."""
    return min(max(cell * 60, LABEL_SIZES[0]), LABEL_SIZES[1])


def _draw_head(axes: Axes, matrix: np.ndarray, cell: float) -> AxesImage:
    """Draw a matrix [T, S] as colored cells with hairlines between them."""
    # With "none", an SVG file has one pixel per cell and tells viewers not to blur them.
    image = axes.imshow(matrix, COLORMAP, vmin=0, vmax=1, aspect="auto", interpolation="none")
    axes.spines[:].set_visible(True)
    height, width = matrix.shape
    thin = 1.7 * cell  # in points; lines of a fixed width would cover small cells
    axes.vlines(np.arange(1, width) - 0.5, -0.5, height - 0.5, HAIRLINE, linewidth=thin)
    axes.hlines(np.arange(1, height) - 0.5, -0.5, width - 0.5, HAIRLINE, linewidth=thin)
    return image


def _label(axes: Axes, rows: Sequence[str], columns: Sequence[str], cell: float) -> None:
    """Label rows on the left and columns above. If cells are small, label only every n-th."""
    size = _label_size(cell)
    step = math.ceil(LINE_HEIGHT * size / 72 / cell)
    axes.tick_params(length=0, pad=PAD * 72, labelsize=size)
    axes.tick_params(bottom=False, labelbottom=False, top=True, labeltop=True)
    axes.set_yticks(range(0, len(rows), step), rows[::step])
    axes.set_xticks(range(0, len(columns), step), columns[::step])
    for label in axes.get_xticklabels():
        # Rotate about the baseline. Otherwise "▁", which lies below it, would shift the word.
        label.set(rotation=90, rotation_mode="anchor", ha="left", va="center_baseline")


def _draw_bar(figure: Figure, image: AxesImage, layout: _Layout) -> None:
    """Draw the color bar with its ticks."""
    axes = figure.add_axes(layout.bar_box())
    figure.colorbar(image, cax=axes, ticks=[0, 0.5, 1], format="{x:g}")
    axes.tick_params(length=0, labelsize=TEXT_SIZE)
    axes.set_ylabel("attention weight", size=TEXT_SIZE)
