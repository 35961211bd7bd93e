"""How long sentences are, and what the batches of a training are filled with."""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from tfnmt.data.batching.plan import Plan
from tfnmt.plots.style import FRAME, PALETTE, styled

INCHES = 9.0, 6.0

Lengths = Mapping[str, np.ndarray]
"""Pieces of the source's and of the target's sentences, eos counted, by language."""


class Filling(NamedTuple):
    """What is in an epoch's batches, by the length that they are padded to; both sides together."""

    lengths: np.ndarray  # [N] in pieces, rising
    pieces: np.ndarray  # [N] slots with a piece
    padding: np.ndarray  # [N] slots without
    batches: int
    shortest: int  # a pair's longer side, of the shortest pair

    @property
    def padding_share(self) -> float:
        """Of all slots."""
        return float(self.padding.sum() / (self.padding.sum() + self.pieces.sum()))


def fill(plan: Plan) -> Filling:
    """Counts the slots of the first epoch."""
    pieces: Counter[int] = Counter()
    slots: Counter[int] = Counter()
    shortest = []
    for step in range(plan.batches_per_epoch):
        pairs, length = plan.batch(step)
        for side in (pairs.source, pairs.target):
            pieces[length] += int(side.lengths[pairs.rows].sum())
            slots[length] += length * len(pairs.rows)
        shortest.append(int(pairs.lengths.min()))
    padded = sorted(slots)
    filled, all_slots = (np.array([of[length] for length in padded]) for of in (pieces, slots))
    return Filling(
        np.array(padded), filled, all_slots - filled, plan.batches_per_epoch, min(shortest)
    )


def draw_batches(plan: Plan, lengths: Lengths) -> Figure:
    """Sentences by length above, slots by the length of their batch below."""
    filling = fill(plan)
    longest = int(filling.lengths[-1])
    with styled():
        figure = Figure(figsize=INCHES, layout="constrained")
        above, below = figure.subplots(2, 1, sharex=True)
        for language, side in lengths.items():
            counts = np.bincount(side[plan.rows], minlength=longest + 1)
            above.stairs(counts, np.arange(len(counts) + 1) - 0.5, label=language, linewidth=1.8)
        above.set(
            title=f"Sentences of {len(plan.rows):,} pairs",
            ylabel="sentences",
            xlim=(0, longest + 1),
        )
        _draw_filling(below, filling)
        for axes in (above, below):
            axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
            axes.grid(axis="y")
            axes.legend()
    return figure


def _draw_filling(axes: Axes, filling: Filling) -> None:
    # A bar spans the lengths of the sentences that are padded to its own.
    spans = np.diff(filling.lengths, prepend=filling.shortest - 1)
    middles, widths = filling.lengths + 0.5 - spans / 2, 0.85 * spans
    axes.bar(middles, filling.pieces, widths, color=PALETTE[0], label="pieces")
    axes.bar(middles, filling.padding, widths, filling.pieces, color=FRAME, label="padding")
    share = f"{filling.padding_share:.1%} of their slots are padding"
    axes.set(
        title=f"{filling.batches:,} batches of an epoch: {share}",
        xlabel="length in pieces, eos counted: of the sentence, of the batch",
        ylabel="slots, both sides",
    )
