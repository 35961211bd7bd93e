from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tfnmt.config import build_config, dump_config
from tfnmt.errors import UserError
from tfnmt.plots.curves import Curves, Series, draw_comparison, draw_curves, read_curves
from tfnmt.runs.run import Run


def write_events(run: Run, name: str, points: dict[int, float]) -> None:
    """Write a TensorBoard event file, as each start of a training run does."""
    writer = tf.summary.create_file_writer(str(run.logs), filename_suffix=f".{len(points)}")
    with writer.as_default():
        for step, value in points.items():
            tf.summary.scalar(name, value, step)
            tf.summary.text("val/translations", "text", step)
    writer.close()


def evaluation(
    split: str, beam_size: int, step: int, bleu: float, direction: str = "en-de"
) -> dict[str, Any]:
    source, target = direction.split("-")
    languages = {"source": source, "target": target}
    score = {"bleu": {"score": bleu}}
    return {"split": split, "beam_size": beam_size, "step": step, **languages, **score}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    (tmp_path / "config.yaml").write_text(dump_config(build_config({})))
    return Run(tmp_path)


def test_read_curves_returns_logged_and_evaluated_scores(run: Run) -> None:
    write_events(run, "train/loss", {50: 6.0, 100: 5.0})
    run.append_validation(60, 10.0)
    run.append_validation(120, 20.0)
    for scores in (("val", 4, 120, 21.0), ("val", 1, 120, 19.0), ("test", 4, 120, 30.0)):
        run.append_evaluation(evaluation(*scores))
    curves = read_curves(run)
    assert curves.name == run.path.name
    np.testing.assert_array_equal(curves.loss, [[50, 100], [6, 5]])
    np.testing.assert_array_equal(curves.bleu, [[60, 120], [10, 20]])
    assert list(curves.evaluations) == [1, 4]
    np.testing.assert_array_equal(curves.evaluations[4], [[120], [21]])


def test_read_curves_averages_the_directions_of_a_run(run: Run) -> None:
    config = build_config({"data": {"directions": ["en-de", "de-en"]}})
    (run.path / "config.yaml").write_text(dump_config(config))
    write_events(run, "train/loss", {50: 6.0})
    for direction, bleu in (("en-de", 20.0), ("de-en", 30.0)):
        run.append_evaluation(evaluation("val", 4, 120, bleu, direction))
    run.append_evaluation(evaluation("val", 4, 240, 50.0))  # of one direction only
    np.testing.assert_array_equal(read_curves(run).evaluations[4], [[120], [25]])


def test_read_curves_ignores_other_engines_and_incomplete_lines(run: Run) -> None:
    write_events(run, "train/loss", {50: 6.0})
    run.append_evaluation(evaluation("val", 4, 120, 21.0))
    run.append_evaluation(evaluation("val", 4, 120, 1.0) | {"engine": "litert"})
    run.append_evaluation({"split": "val"})
    np.testing.assert_array_equal(read_curves(run).evaluations[4], [[120], [21]])


def test_read_curves_ignores_evaluations_with_other_decoding_settings(run: Run) -> None:
    write_events(run, "train/loss", {50: 6.0})
    run.append_evaluation(evaluation("val", 4, 120, 21.0) | {"max_length": None})
    for change in ({"max_length": 5}, {"length_penalty": 2.0}):
        run.append_evaluation(evaluation("val", 4, 120, 1.0) | change)
    np.testing.assert_array_equal(read_curves(run).evaluations[4], [[120], [21]])


def test_read_curves_includes_bleu_that_only_tensorboard_has(run: Run) -> None:
    write_events(run, "train/loss", {50: 6.0})
    write_events(run, "val/bleu", {60: 11.0, 120: 12.0})
    np.testing.assert_array_equal(read_curves(run).bleu, [[60, 120], [11, 12]])


def test_read_curves_rejects_a_run_without_training_loss(run: Run) -> None:
    with pytest.raises(UserError, match=r"logs: .*train the run"):
        read_curves(run)


def curves(name: str, losses: int, evaluations: dict[int, Series] | None = None) -> Curves:
    steps = np.arange(1, losses + 1)
    return Curves(name, Series(steps, 8 / steps), Series(steps, 10 / steps), evaluations or {})


def test_run_has_one_color_and_a_marker_per_beam_size() -> None:
    evaluations = {beam: Series(np.array([3]), np.array([9.0])) for beam in (1, 4)}
    figure = draw_curves([curves("one", 4, evaluations), curves("two", 4)])
    loss, bleu = figure.axes
    assert [line.get_label() for line in loss.lines] == ["one", "two"]
    line, greedy, beam, other = bleu.lines
    assert len({each.get_color() for each in (line, greedy, beam, loss.lines[0])}) == 1
    assert other.get_color() == loss.lines[1].get_color() != line.get_color()
    texts = [text.get_text() for text in bleu.get_legend().get_texts()]
    assert texts == ["one, validation", "one, greedy", "one, beam 4", "two, validation"]


@pytest.mark.parametrize("losses", [1, 29, 31, 1000])
def test_smoothed_loss_averages_windows_that_end_at_the_last_step(losses: int) -> None:
    loss, _ = draw_curves([curves("one", losses)]).axes
    steps, values = loss.lines[0].get_data()
    assert len(steps) <= 60
    window = max(1, losses // 30)
    last = np.arange(losses - window + 1, losses + 1)
    assert steps[-1] == last.mean()
    assert values[-1] == pytest.approx((8 / last).mean())


@pytest.mark.parametrize("count", [1, 4, 6])
def test_comparison_has_a_panel_per_run_with_the_reference(count: int) -> None:
    others = [curves(f"run {number}", 100 + number) for number in range(count)]
    figure = draw_comparison(curves("reference", 90), others)
    panels = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title(loc="left") for axes in panels] == [run.name for run in others]
    references = [axes.lines[0].get_ydata().tolist() for axes in panels]
    assert all(reference == references[0] for reference in references)
    assert len({tuple(axes.lines[1].get_ydata()) for axes in panels}) == count
