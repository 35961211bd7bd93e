"""What all pictures have in common: colours, lines, and the files that they become."""

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import matplotlib.style
from cycler import cycler
from matplotlib.figure import Figure

from tfnmt.plots.fonts import charsets

# Okabe and Ito (2008): told apart by colour-blind readers too. Their yellow is too light for lines.
PALETTE = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#000000")
INK, FRAME, HAIRLINE = "#333333", "#b8c2cc", "#e8ecf0"

# Points.
TITLE_SIZE = 14
TEXT_SIZE = 9

STYLE = {
    "axes.axisbelow": True,
    "axes.edgecolor": FRAME,
    "axes.labelcolor": INK,
    "axes.labelsize": TEXT_SIZE,
    # Where there are more lines than colours, dashes tell the others.
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
    "svg.hashsalt": "tfnmt",  # else the ids within the file are random
    "text.color": INK,
    "text.parse_math": False,  # a piece may hold dollars
    "xtick.color": FRAME,
    "xtick.labelcolor": INK,
    "ytick.color": FRAME,
    "ytick.labelcolor": INK,
}

_lock = threading.RLock()


@contextmanager
def styled() -> Iterator[None]:
    """Our settings on top of matplotlib's own, whatever the user's matplotlibrc says."""
    # They belong to the process: without the lock, threads would undo one another's.
    with _lock, matplotlib.style.context(["default", STYLE, {"font.family": list(charsets())}]):
        yield


def to_png(figure: Figure) -> bytes:
    """The figure as a PNG file; equal figures give equal bytes."""
    return _save(figure, "png", {"Software": None})


def to_svg(figure: Figure) -> bytes:
    """The figure as an SVG file, its letters as outlines; equal figures give equal bytes."""
    return _save(figure, "svg", {"Creator": None, "Date": None})


def _save(figure: Figure, file_format: str, metadata: dict[str, None]) -> bytes:
    """The file's bytes; None leaves out what matplotlib would say of itself and of today."""
    file = io.BytesIO()
    with styled():
        figure.savefig(file, format=file_format, metadata=metadata)
    return file.getvalue()
