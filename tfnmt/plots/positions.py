"""The positional encoding (section 3.5): the pattern that tells the positions apart."""

import numpy as np
from matplotlib.figure import Figure

from tfnmt.plots.style import styled

COLOURS = "RdBu_r"
"""From -1, blue, over white to 1, red: told apart by colour-blind readers too."""

WAVES = (1 / 8, 1 / 4, 3 / 8)
"""The columns that are drawn as waves, by the share of all columns that come before them."""

INCHES = 9.0, 6.2


def draw_positions(encoding: np.ndarray) -> Figure:
    """The encoding [T, D] as a heat map, and below it some of its columns as waves."""
    length, d_model = encoding.shape
    with styled():
        figure = Figure(figsize=INCHES, layout="constrained")
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1.3))
        edges = (-0.5, length - 0.5, d_model - 0.5, -0.5)
        image = above.imshow(
            encoding.T, COLOURS, vmin=-1, vmax=1, aspect="auto", interpolation="none", extent=edges
        )
        above.set(title=f"Positional encoding, d_model {d_model}", ylabel="dimension")
        figure.colorbar(image, ax=above, ticks=[-1, 0, 1], label="value", aspect=30, pad=0.01)
        for share in WAVES:
            dimension = 2 * int(share * d_model / 2)  # even ones are sines
            below.plot(encoding[:, dimension], label=f"dimension {dimension}")
        below.set(xlabel="position", ylabel="value", yticks=[-1, 0, 1])
        figure.legend(
            *below.get_legend_handles_labels(), loc="outside lower center", ncols=len(WAVES)
        )
    return figure
