"""Sentence lengths and the padding of batches as a plot."""

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
"""The number of tokens of each sentence, EOS included, by language."""


class PaddingStatistics(NamedTuple):
    """Token counts of one epoch, by the padded length of the batch, for both sides together."""

    lengths: np.ndarray  # [N] padded lengths, ascending
    tokens: np.ndarray  # [N] real tokens
    padding: np.ndarray  # [N] padding tokens
    batches: int
    shortest: int  # length of the longer side of the shortest pair

    @property
    def padding_share(self) -> float:
        """Share of padding in all padded tokens."""
        return float(self.padding.sum() / (self.padding.sum() + self.tokens.sum()))


def count_padding(plan: Plan) -> PaddingStatistics:
    """Count the real and the padding tokens of the first epoch."""
    tokens: Counter[int] = Counter()
    padded_tokens: Counter[int] = Counter()
    shortest = []
    for step in range(plan.batches_per_epoch):
        pairs, length = plan.batch(step)
        for side in (pairs.source, pairs.target):
            tokens[length] += int(side.lengths_of(pairs.rows).sum())
            padded_tokens[length] += length * len(pairs.rows)
        shortest.append(int(pairs.lengths.min()))
    lengths = sorted(padded_tokens)
    real = np.array([tokens[length] for length in lengths])
    padding = np.array([padded_tokens[length] for length in lengths]) - real
    return PaddingStatistics(
        np.array(lengths), real, padding, plan.batches_per_epoch, min(shortest)
    )


def draw_batches(plan: Plan, lengths: Lengths) -> Figure:
    """Draw sentences by their length, and below it padded tokens by the length of their batch.

    Args:
        plan: The plan of the epoch.
        lengths: The lengths of the sentences of both languages.
    """
    statistics = count_padding(plan)
    longest = int(statistics.lengths[-1])
    with styled():
        figure = Figure(figsize=INCHES, layout="constrained")
        above, below = figure.subplots(2, 1, sharex=True)
        for language, side in lengths.items():
            counts = np.bincount(side[plan.rows], minlength=longest + 1)
            above.stairs(counts, np.arange(len(counts) + 1) - 0.5, label=language, linewidth=1.8)
        above.set(
            title=f"Sentences of {len(plan.rows):,} pairs, by length",
            ylabel="sentences",
            xlim=(0, longest + 1),
        )
        _draw_padding(below, statistics)
        for axes in (above, below):
            axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
            axes.grid(axis="y")
            axes.legend()
    return figure


def _draw_padding(axes: Axes, statistics: PaddingStatistics) -> None:
    # A bar covers the lengths of the sentences that are padded to its length.
    spans = np.diff(statistics.lengths, prepend=statistics.shortest - 1)
    middles, widths = statistics.lengths + 0.5 - spans / 2, 0.85 * spans
    axes.bar(middles, statistics.tokens, widths, color=PALETTE[0], label="tokens")
    axes.bar(middles, statistics.padding, widths, statistics.tokens, color=FRAME, label="padding")
    share = f"{statistics.padding_share:.1%} padding"
    axes.set(
        title=f"{statistics.batches:,} batches per epoch: {share}",
        xlabel="length in tokens, EOS included (above: sentence, below: batch)",
        ylabel="padded tokens, both sides",
    )
