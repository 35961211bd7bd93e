"""The positional encoding (section 3.5) as a plot."""

import numpy as np
from matplotlib.figure import Figure

from tfnmt.plots.style import styled

COLORMAP = "RdBu_r"
"""Blue at -1, white at 0, red at 1; readers with color blindness can distinguish them."""

CURVES = (1 / 8, 1 / 4, 3 / 8)
"""The dimensions that are also drawn as curves, as fractions of d_model."""

INCHES = 9.0, 6.2


def draw_positions(encoding: np.ndarray) -> Figure:
    """Draw the encoding as a heat map, and some of its dimensions as curves below it.

    Args:
        encoding: [T, D].
    """
    length, d_model = encoding.shape
    with styled():
        figure = Figure(figsize=INCHES, layout="constrained")
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1.3))
        edges = (-0.5, length - 0.5, d_model - 0.5, -0.5)
        image = above.imshow(
            encoding.T, COLORMAP, vmin=-1, vmax=1, aspect="auto", interpolation="none", extent=edges
        )
        above.set(title=f"Positional encoding, d_model {d_model}", ylabel="dimension")
        figure.colorbar(image, ax=above, ticks=[-1, 0, 1], label="value", aspect=30, pad=0.01)
        for fraction in CURVES:
            dimension = 2 * int(fraction * d_model / 2)  # even dimensions are sines
            below.plot(encoding[:, dimension], label=f"dimension {dimension}")
        below.set(xlabel="position", ylabel="value", yticks=[-1, 0, 1])
        figure.legend(
            *below.get_legend_handles_labels(), loc="outside lower center", ncols=len(CURVES)
        )
    return figure
