"""The learning rate over the training steps (section 5.3) as a plot."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from tfnmt.plots.style import styled

INCHES = 5.0, 3.6
"""Width and height of a panel."""

LearningRates = Mapping[str, np.ndarray]
"""Learning rates [N] of N steps, by the label of the curve."""


def draw_schedule(panels: Mapping[str, LearningRates]) -> Figure:
    """Draw panels of schedules side by side, with one scale.

    Args:
        panels: The curves of each panel, by its title.
    """
    width, height = INCHES
    with styled():
        figure = Figure(figsize=(width * len(panels), height), layout="constrained")
        row = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, (title, curves) in zip(row, panels.items(), strict=True):
            for label, values in curves.items():
                axes.plot(np.arange(1, len(values) + 1), values, label=label)
            axes.set(title=title, xlabel="step", xlim=(0, None), ylim=(0, None))
            axes.xaxis.set_major_locator(MaxNLocator(5))
            axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
            axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axes.grid(axis="y")
            axes.legend()
        row[0].set_ylabel("learning rate")
    return figure
