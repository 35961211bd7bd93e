"""The common style of all plots, and their conversion to PNG and SVG."""

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import matplotlib.style
from cycler import cycler
from matplotlib.figure import Figure

from tfnmt.plots.fonts import charsets

# Okabe and Ito (2008), for readers with color blindness. Their yellow is too light for lines.
PALETTE = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#000000")
INK, FRAME, HAIRLINE = "#333333", "#b8c2cc", "#e8ecf0"

# Sizes in points.
TITLE_SIZE = 14
TEXT_SIZE = 9

STYLE = {
    "axes.axisbelow": True,
    "axes.edgecolor": FRAME,
    "axes.labelcolor": INK,
    "axes.labelsize": TEXT_SIZE,
    # If there are more lines than colors, dashes distinguish the others.
    "axes.prop_cycle": cycler(linestyle=["-", "--", ":"]) * cycler(color=PALETTE),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.titlesize": TEXT_SIZE + 1,
    "figure.constrained_layout.h_pad": 0.1,
    "figure.constrained_layout.w_pad": 0.1,
    "figure.titlesize": TITLE_SIZE,
    "font.size": TEXT_SIZE,
    "grid.color": HAIRLINE,
    "legend.frameon": False,
    "legend.fontsize": TEXT_SIZE,
    "lines.linewidth": 1.8,
    "savefig.dpi": 144,
    "svg.hashsalt": "tfnmt",  # without it, the ids in the file are random
    "text.color": INK,
    "text.parse_math": False,  # a token may contain dollar signs
    "xtick.color": FRAME,
    "xtick.labelcolor": INK,
    "ytick.color": FRAME,
    "ytick.labelcolor": INK,
}

_lock = threading.RLock()


@contextmanager
def styled() -> Iterator[None]:
    """Apply STYLE on top of matplotlib's defaults; the user's matplotlibrc has no effect."""
    # The settings are global. Without the lock, threads would overwrite each other's settings.
    with _lock, matplotlib.style.context(["default", STYLE, {"font.family": list(charsets())}]):
        yield


def to_png(figure: Figure) -> bytes:
    """Convert a figure to a PNG file; equal figures give equal bytes."""
    return _save(figure, "png", {"Software": None})


def to_svg(figure: Figure) -> bytes:
    """Convert a figure to an SVG file with text as outlines; equal figures give equal bytes."""
    return _save(figure, "svg", {"Creator": None, "Date": None})


def _save(figure: Figure, file_format: str, metadata: dict[str, None]) -> bytes:
    """Return the bytes of the file. Metadata of None removes matplotlib's version and the date."""
    file = io.BytesIO()
    with styled():
        figure.savefig(file, format=file_format, metadata=metadata)
    return file.getvalue()
