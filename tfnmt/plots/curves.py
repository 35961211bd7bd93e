"""Training curves as plots: loss and validation BLEU over the steps, for several runs."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from tfnmt.config import DecodingConfig
from tfnmt.errors import UserError
from tfnmt.plots.fonts import to_drawable
from tfnmt.plots.style import FRAME, PALETTE, TEXT_SIZE, styled
from tfnmt.runs.run import Run

LOSS, BLEU = "train/loss", "val/bleu"
"""Names of the scalars in the TensorBoard logs."""

EVALUATION_KEYS = {"split", "source", "target", "beam_size", "step", "bleu"}

POINTS = 30
"""Approximate number of points of a smoothed loss. Each is the mean of one window of steps."""

MAX_NAME = 30
INCHES = 10.0, 3.8
PANEL_INCHES = 2.5, 1.7
PANELS_PER_ROW = 4
"""Number of panels in a row of `draw_comparison`."""


class Series(NamedTuple):
    """A curve: values by training step."""

    steps: np.ndarray  # [N]
    values: np.ndarray  # [N]


class Curves(NamedTuple):
    """The curves of a run."""

    name: str
    loss: Series  # label-smoothed, at the logged steps
    bleu: Series  # of the validations during training
    evaluations: dict[int, Series]  # BLEU of evaluations on the validation set, by beam size


def read_curves(run: Run, split: str = "val") -> Curves:
    """Read the curves of a run. If a step was logged twice, the later value counts.

    TensorFlow must be imported before the call.

    Args:
        run: The run.
        split: The split of the evaluations to read.

    Raises:
        UserError: If the run has no training loss.
    """
    points: dict[str, dict[int, float]] = {LOSS: {}, BLEU: {}}
    for file in sorted(run.logs.glob("events.*")):
        for name, step, value in _scalars(file):
            if name in points:
                points[name][step] = value
    if not points[LOSS]:
        raise UserError(f"{run.logs}: no training curves; train the run first")
    return Curves(
        run.path.resolve().name,
        _series(points[LOSS]),
        _series(points[BLEU] | run.validations()),
        {size: _series(by_step) for size, by_step in sorted(_evaluated(run, split).items())},
    )


def _evaluated(run: Run, split: str) -> dict[int, dict[int, float]]:
    """Return BLEU by beam size and step, the mean of the directions of the run.

    Evaluations with another engine, or without one of the directions, do not count.
    """
    config = run.config()
    scores: dict[tuple[int, int], dict[str, float]] = {}
    for evaluation in run.evaluations():
        if not _is_comparable(evaluation, split, config.decoding):
            continue
        place = (evaluation["beam_size"], evaluation["step"])
        direction = f"{evaluation['source']}-{evaluation['target']}"
        scores.setdefault(place, {})[direction] = evaluation["bleu"]["score"]
    evaluated: dict[int, dict[int, float]] = {}
    for (beam_size, step), by_direction in scores.items():
        if set(by_direction) >= set(config.data.all_directions):
            evaluated.setdefault(beam_size, {})[step] = fmean(by_direction.values())
    return evaluated


def _is_comparable(evaluation: dict[str, Any], split: str, decoding: DecodingConfig) -> bool:
    """Return whether an evaluation used the run's decoding settings, except for the beam size."""
    if "engine" in evaluation or not evaluation.keys() >= EVALUATION_KEYS:
        return False
    if evaluation["split"] != split:
        return False
    return all(
        evaluation.get(key, value) == value
        for key, value in decoding.model_dump().items()
        if key != "beam_size"
    )


def draw_curves(runs: Sequence[Curves]) -> Figure:
    """Draw the loss on the left and BLEU on the right; a run has the same color in both."""
    with styled():
        figure = Figure(figsize=INCHES, layout="constrained")
        loss, bleu = figure.subplots(1, 2)
        for run in runs:
            _draw_loss(loss, run)
            _draw_bleu(bleu, run)
        loss.set(
            title="Training loss", ylabel="nats per token, with label smoothing", ylim=(0, None)
        )
        bleu.set(title="Validation", ylabel="BLEU", ylim=(0, None))
        for axes in (loss, bleu):
            axes.set(xlabel="step", xlim=(0, None))
            axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
            axes.grid(axis="y")
        if len(runs) > 1:
            loss.legend()
        bleu.legend(loc="lower right")
    return figure


def draw_comparison(reference: Curves, others: Sequence[Curves]) -> Figure:
    """Draw the loss of each other run in its own panel, with that of the reference in gray."""
    width, height = PANEL_INCHES
    down = math.ceil(len(others) / PANELS_PER_ROW)
    with styled():
        figure = Figure(figsize=(PANELS_PER_ROW * width, down * height), layout="constrained")
        panels = figure.subplots(down, PANELS_PER_ROW, sharex=True, sharey=True, squeeze=False).flat
        for run, axes in zip(others, panels, strict=False):
            axes.plot(*_smoothed(reference.loss), color=FRAME)
            axes.plot(*_smoothed(run.loss), color=PALETTE[0])
            axes.tick_params(labelbottom=True)  # even if there is a panel below
            axes.set(title=_name(run), xlim=(0, None), ylim=(0, None))
            axes.grid(axis="y")
        for axes in panels:  # without a run
            axes.set_visible(False)
        figure.supxlabel(f"step (gray: {_name(reference)})", size=TEXT_SIZE)
        figure.supylabel("training loss, nats per token", size=TEXT_SIZE)
    return figure


def _smoothed(series: Series) -> tuple[np.ndarray, np.ndarray]:
    steps, values = _windows(series)
    return steps.mean(axis=1), values.mean(axis=1)


def _windows(series: Series) -> tuple[np.ndarray, np.ndarray]:
    """Group steps and values into about POINTS windows, [POINTS, N / POINTS]; drop the rest."""
    window = max(1, len(series.steps) // POINTS)
    count = len(series.steps) // window * window
    steps, values = (each[-count:].reshape(-1, window) for each in series)
    return steps, values


def _draw_loss(axes: Axes, run: Curves) -> None:
    """Draw the smoothed loss over a faint band that contains 90 % of the individual losses."""
    middles, means = _smoothed(run.loss)
    (line,) = axes.plot(middles, means, label=_name(run))
    _, values = _windows(run.loss)
    low, high = np.quantile(values, (0.05, 0.95), axis=1)
    axes.fill_between(middles, low, high, color=line.get_color(), alpha=0.15, lw=0)


def _draw_bleu(axes: Axes, run: Curves) -> None:
    """Draw the BLEU of validations as a curve, and that of evaluations as markers."""
    (line,) = axes.plot(*run.bleu, marker="o", markersize=3, label=f"{_name(run)}, validation")
    for beam_size, series in run.evaluations.items():
        search = "greedy" if beam_size == 1 else f"beam {beam_size}"
        axes.plot(
            *series,
            marker="o" if beam_size == 1 else "D",
            linestyle="",
            markersize=7,
            color=line.get_color(),
            markerfacecolor="white",
            label=f"{_name(run)}, {search}",
        )


def _name(run: Curves) -> str:
    return to_drawable(run.name, MAX_NAME)


def _series(points: dict[int, float]) -> Series:
    steps = sorted(points)
    return Series(np.array(steps), np.array([points[step] for step in steps]))


def _scalars(file: Path) -> Iterator[tuple[str, int, float]]:
    """Yield name, step and value of each scalar in a TensorBoard file, even if it is incomplete."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    from tensorboard.util.tensor_util import make_ndarray

    for event in EventFileLoader(str(file)).Load():
        for value in event.summary.value:
            if value.metadata.plugin_data.plugin_name == "scalars":
                yield value.tag, event.step, float(make_ndarray(value.tensor))
