"""The learning rate over the updates (section 5.3)."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from tfnmt.plots.style import styled

INCHES = 5.0, 3.6
"""Of a panel."""

Rates = Mapping[str, np.ndarray]
"""The rate [N] of each of N updates, by what it depends on."""


def draw_schedule(panels: Mapping[str, Rates]) -> Figure:
    """Panels of schedules side by side, on one scale, by their titles."""
    width, height = INCHES
    with styled():
        figure = Figure(figsize=(width * len(panels), height), layout="constrained")
        row = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, (title, rates) in zip(row, panels.items(), strict=True):
            for name, values in rates.items():
                axes.plot(np.arange(1, len(values) + 1), values, label=name)
            axes.set(title=title, xlabel="update", xlim=(0, None), ylim=(0, None))
            axes.xaxis.set_major_locator(MaxNLocator(5))
            axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
            axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axes.grid(axis="y")
            axes.legend()
        row[0].set_ylabel("learning rate")
    return figure
