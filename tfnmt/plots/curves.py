"""How trainings went: loss and validation BLEU over the updates, several runs together."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from tfnmt.config import DecodingConfig
from tfnmt.errors import UserError
from tfnmt.plots.fonts import drawable
from tfnmt.plots.style import FRAME, PALETTE, TEXT_SIZE, styled
from tfnmt.runs.run import Run

LOSS, BLEU = "train/loss", "val/bleu"
"""Names of the curves in TensorBoard's files."""

POINTS = 30
"""Of a smoothed loss, about: each is the mean of as many updates."""

MAX_NAME = 30
INCHES = 10.0, 3.8
PANEL_INCHES = 2.5, 1.7
ACROSS = 4
"""Panels side by side, where each run has its own."""


class Series(NamedTuple):
    """A curve."""

    steps: np.ndarray  # [N]
    values: np.ndarray  # [N]


class Curves(NamedTuple):
    """What a run's folder tells of its training."""

    name: str
    loss: Series  # label-smoothed, of the updates that were logged
    bleu: Series  # of validations
    scored: dict[int, Series]  # BLEU of evaluations on the validation text, by beam size


def read_curves(run: Run, split: str = "val") -> Curves:
    """The curves of a run; of a step that was made twice, the later one counts.

    To be called when TensorFlow has been imported. Raises a UserError where there is no curve.
    """
    points: dict[str, dict[int, float]] = {LOSS: {}, BLEU: {}}
    for file in sorted(run.logs.glob("events.*")):
        for name, step, value in _scalars(file):
            if name in points:
                points[name][step] = value
    if not points[LOSS]:
        raise UserError(f"{run.logs}: no curves there; train the run first")
    scored: dict[int, dict[int, float]] = {}
    decoding = run.config().decoding
    for evaluation in run.evaluations():
        if evaluation["split"] == split and _searched_alike(evaluation, decoding):
            of_beam = scored.setdefault(evaluation["beam_size"], {})
            of_beam[evaluation["step"]] = evaluation["bleu"]["score"]
    return Curves(
        run.path.resolve().name,
        _series(points[LOSS]),
        _series(points[BLEU] | run.validations()),
        {beam_size: _series(scored[beam_size]) for beam_size in sorted(scored)},
    )


def _searched_alike(evaluation: dict[str, Any], decoding: DecodingConfig) -> bool:
    """Whether it was searched for as the run is set to, but for the beam."""
    return all(
        evaluation.get(key, value) == value
        for key, value in decoding.model_dump().items()
        if key != "beam_size"
    )


def draw_curves(runs: Sequence[Curves]) -> Figure:
    """Loss at the left, BLEU at the right; a run has one colour in both."""
    with styled():
        figure = Figure(figsize=INCHES, layout="constrained")
        loss, bleu = figure.subplots(1, 2)
        for run in runs:
            _draw_loss(loss, run)
            _draw_bleu(bleu, run)
        loss.set(title="Training loss", ylabel="nats a piece, with label smoothing", ylim=(0, None))
        bleu.set(title="Validation", ylabel="BLEU", ylim=(0, None))
        for axes in (loss, bleu):
            axes.set(xlabel="update", xlim=(0, None))
            axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
            axes.grid(axis="y")
        if len(runs) > 1:
            loss.legend()
        bleu.legend(loc="lower right")
    return figure


def draw_beside(first: Curves, others: Sequence[Curves]) -> Figure:
    """Losses of the others, a panel each, before that of the first in grey."""
    width, height = PANEL_INCHES
    down = math.ceil(len(others) / ACROSS)
    with styled():
        figure = Figure(figsize=(ACROSS * width, down * height), layout="constrained")
        panels = figure.subplots(down, ACROSS, sharex=True, sharey=True, squeeze=False).flat
        for run, axes in zip(others, panels, strict=False):
            axes.plot(*_smoothed(first.loss), color=FRAME)
            axes.plot(*_smoothed(run.loss), color=PALETTE[0])
            axes.tick_params(labelbottom=True)  # also where no panel is below
            axes.set(title=_name(run), xlim=(0, None), ylim=(0, None))
            axes.grid(axis="y")
        for axes in panels:  # those that no run is left for
            axes.set_visible(False)
        figure.supxlabel(f"update (grey: {_name(first)})", size=TEXT_SIZE)
        figure.supylabel("training loss, nats a piece", size=TEXT_SIZE)
    return figure


def _smoothed(series: Series) -> tuple[np.ndarray, np.ndarray]:
    steps, values = _windows(series)
    return steps.mean(axis=1), values.mean(axis=1)


def _windows(series: Series) -> tuple[np.ndarray, np.ndarray]:
    """Steps and values, [POINTS, N / POINTS] about; what does not come out even is left out."""
    window = max(1, len(series.steps) // POINTS)
    count = len(series.steps) // window * window
    steps, values = (each[-count:].reshape(-1, window) for each in series)
    return steps, values


def _draw_loss(axes: Axes, run: Curves) -> None:
    """The loss, smoothed, over a faint band that has nine tenths of the updates' own."""
    middles, means = _smoothed(run.loss)
    (line,) = axes.plot(middles, means, label=_name(run))
    _, values = _windows(run.loss)
    low, high = np.quantile(values, (0.05, 0.95), axis=1)
    axes.fill_between(middles, low, high, color=line.get_color(), alpha=0.15, lw=0)


def _draw_bleu(axes: Axes, run: Curves) -> None:
    """BLEU of the validations as a curve, and that of evaluations as marks beside it."""
    (line,) = axes.plot(*run.bleu, marker="o", markersize=3, label=f"{_name(run)}, on the way")
    for beam_size, series in run.scored.items():
        what = "greedy" if beam_size == 1 else f"beam {beam_size}"
        axes.plot(
            *series, marker="o" if beam_size == 1 else "D", linestyle="", markersize=7,
            color=line.get_color(), markerfacecolor="white", label=f"{_name(run)}, {what}",
        )  # fmt: skip


def _name(run: Curves) -> str:
    return drawable(run.name, MAX_NAME)


def _series(points: dict[int, float]) -> Series:
    steps = sorted(points)
    return Series(np.array(steps), np.array([points[step] for step in steps]))


def _scalars(file: Path) -> Iterator[tuple[str, int, float]]:
    """Name, step and value of each scalar in one of TensorBoard's files, which may end anywhere."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    from tensorboard.util.tensor_util import make_ndarray

    for event in EventFileLoader(str(file)).Load():
        for value in event.summary.value:
            if value.metadata.plugin_data.plugin_name == "scalars":
                yield value.tag, event.step, float(make_ndarray(value.tensor))
