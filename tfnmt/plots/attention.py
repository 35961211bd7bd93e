"""Attention as heat maps: which keys each query looks at, one panel per head."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from tfnmt.plots.fonts import drawable, width_of
from tfnmt.plots.style import HAIRLINE, TEXT_SIZE, TITLE_SIZE, styled

# White to dark blue in steps that look equally large (in OKLab they are); red is not a number.
COLOURS = LinearSegmentedColormap.from_list(
    "attention",
    [
        "#ffffff", "#c6e9ff", "#91d0f9", "#5fb3ea", "#3495d5",
        "#1176ba", "#08579b", "#153a79", "#1a1e56",
    ],
).with_extremes(bad="#d62728")  # fmt: skip

MAX_LABEL = 14  # characters, as a reader counts them
MAX_TITLE = 100

# Inches.
MAX_CELLS = 20.0, 14.0  # width and height of all cells together
MAX_CELL = 0.24
MAX_SINGLE_CELL = 0.36  # where there is but one head
GAP = 0.2  # between panels, and around the picture
PAD = 0.06  # between a label and its cell
TITLE = 0.36  # the line above everything
CAPTION = 0.18  # the line below a panel
BAR_WIDTH = 0.14
BAR_HEIGHTS = 1.3, 2.4
BAR_LABELS = 0.6  # its numbers, its name, and the margin

# Points.
LABEL_SIZES = 6.0, 10.0
LINE_HEIGHT = 1.16  # of the letters' size

Box = tuple[float, float, float, float]


def draw_attention(
    weights: np.ndarray,
    queries: Sequence[str],
    keys: Sequence[str],
    title: str,
    captions: Sequence[str] = (),
) -> Figure:
    """All heads of a layer, side by side on one scale of colours.

    [H, T, S] weights, T queries (rows) and S keys (columns) -> the figure. Captions [H] say what
    the panels are; without them they are head 1, head 2, ...
    """
    if 0 in weights.shape or weights.shape[1:] != (len(queries), len(keys)):
        raise ValueError(f"{len(queries)} queries, {len(keys)} keys, weights {weights.shape}")
    rows, columns = ([drawable(piece, MAX_LABEL) for piece in side] for side in (queries, keys))
    title = drawable(title, MAX_TITLE)
    captions = captions or [f"head {head}" for head in range(1, len(weights) + 1)]
    with styled():
        layout = _lay_out(len(weights), rows, columns, title)
        figure = Figure(figsize=layout.figure)
        for head, matrix in enumerate(weights):
            axes = figure.add_axes(layout.panel_box(head))
            image = _draw_head(axes, matrix, layout.cell)
            # Labels stand at the outer panels only; the others are in line with these.
            outer_rows = rows if head % layout.across == 0 else []
            outer_columns = columns if head < layout.across else []
            _label(axes, outer_rows, outer_columns, layout.cell)
            if len(weights) > 1:
                axes.set_xlabel(captions[head], size=TEXT_SIZE)
        _draw_bar(figure, image, layout)
        figure.text(*layout.title_point(), title, size=TITLE_SIZE, va="top")
    return figure


class _Layout(NamedTuple):
    """Where things lie, in inches from the upper left corner."""

    across: int  # panels side by side
    cell: float
    panel: tuple[float, float]  # its width and height
    left: float  # what the first panel has on its left
    top: float  # and above it
    caption: float  # and what each panel has below it
    bar_height: float
    figure: tuple[float, float]

    def panel_box(self, head: int) -> Box:
        """Where a head's panel is."""
        down, across = divmod(head, self.across)
        width, height = self.panel
        x = self.left + across * (width + GAP)
        y = self.top + down * (height + self.caption + GAP)
        return self._box(x, y, width, height)

    def bar_box(self) -> Box:
        """Where the colour bar is: at the right."""
        x = self.left + self.across * (self.panel[0] + GAP)
        return self._box(x, self.top, BAR_WIDTH, self.bar_height)

    def title_point(self) -> tuple[float, float]:
        """Where the title's upper left corner is."""
        return self._box(GAP, GAP, 0, 0)[:2]

    def _box(self, x: float, y: float, width: float, height: float) -> Box:
        """The same as shares of the figure, which matplotlib counts from the lower left corner."""
        all_x, all_y = self.figure
        return x / all_x, 1 - (y + height) / all_y, width / all_x, height / all_y


def _lay_out(num_heads: int, rows: Sequence[str], columns: Sequence[str], title: str) -> _Layout:
    """The smallest figure that has room for everything."""
    across = _panels_across(num_heads, len(rows), len(columns))
    down = math.ceil(num_heads / across)
    cell = min(
        MAX_CELL if num_heads > 1 else MAX_SINGLE_CELL,
        MAX_CELLS[0] / (across * len(columns)),
        MAX_CELLS[1] / (down * len(rows)),
    )
    width, height = cell * len(columns), cell * len(rows)
    left = GAP + width_of(rows, _label_size(cell)) + PAD
    top = GAP + TITLE + width_of(columns, _label_size(cell)) + PAD
    caption = CAPTION if num_heads > 1 else 0
    bar_height = min(max(height, BAR_HEIGHTS[0]), BAR_HEIGHTS[1])
    right = left + across * (width + GAP) + BAR_WIDTH + BAR_LABELS
    bottom = top + max(down * (height + caption + GAP), bar_height + GAP)
    right = max(right, GAP + width_of([title], TITLE_SIZE) + GAP)
    return _Layout(across, cell, (width, height), left, top, caption, bar_height, (right, bottom))


def _panels_across(num_heads: int, height: int, width: int) -> int:
    """How many panels of that many cells to put side by side."""

    def faults(across: int) -> float:
        """How far from a page in landscape, and how many places without a panel."""
        down = math.ceil(num_heads / across)
        return abs(math.log(across * width / (down * height) / 1.6)) + across * down / num_heads

    return min(range(1, num_heads + 1), key=faults)


def _label_size(cell: float) -> float:
    """The size of letters, in points, that suits cells of that many inches."""
    return min(max(cell * 60, LABEL_SIZES[0]), LABEL_SIZES[1])


def _draw_head(axes: Axes, matrix: np.ndarray, cell: float) -> AxesImage:
    """[T, S] as coloured cells with hairlines between them."""
    # "none": an SVG file keeps one pixel per cell, and asks viewers not to blur them.
    image = axes.imshow(matrix, COLOURS, vmin=0, vmax=1, aspect="auto", interpolation="none")
    axes.spines[:].set_visible(True)
    height, width = matrix.shape
    thin = 1.7 * cell  # in points: small cells would drown in lines of one width for all
    axes.vlines(np.arange(1, width) - 0.5, -0.5, height - 0.5, HAIRLINE, linewidth=thin)
    axes.hlines(np.arange(1, height) - 0.5, -0.5, width - 0.5, HAIRLINE, linewidth=thin)
    return image


def _label(axes: Axes, rows: Sequence[str], columns: Sequence[str], cell: float) -> None:
    """Names of the rows at the left, of the columns above; not of all where cells are small."""
    size = _label_size(cell)
    step = math.ceil(LINE_HEIGHT * size / 72 / cell)
    axes.tick_params(length=0, pad=PAD * 72, labelsize=size)
    axes.tick_params(bottom=False, labelbottom=False, top=True, labeltop=True)
    axes.set_yticks(range(0, len(rows), step), rows[::step])
    axes.set_xticks(range(0, len(columns), step), columns[::step])
    for label in axes.get_xticklabels():
        # Turned about its baseline: "▁", which hangs below, would push the word aside.
        label.set(rotation=90, rotation_mode="anchor", ha="left", va="center_baseline")


def _draw_bar(figure: Figure, image: AxesImage, layout: _Layout) -> None:
    """The colours and what they stand for."""
    axes = figure.add_axes(layout.bar_box())
    figure.colorbar(image, cax=axes, ticks=[0, 0.5, 1], format="{x:g}")
    axes.tick_params(length=0, labelsize=TEXT_SIZE)
    axes.set_ylabel("attention weight", size=TEXT_SIZE)
