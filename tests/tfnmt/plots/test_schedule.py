import numpy as np

from tfnmt.plots.schedule import draw_schedule


def test_steps_count_from_one_and_all_panels_share_a_scale() -> None:
    rates = np.array([0.1, 0.3, 0.2])
    figure = draw_schedule({"Sizes": {"small": rates, "large": rates / 2}, "One": {"a": rates * 3}})
    first, second = figure.axes
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["Sizes", "One"]
    assert [line.get_label() for line in first.lines] == ["small", "large"]
    np.testing.assert_array_equal(first.lines[0].get_xdata(), [1, 2, 3])
    np.testing.assert_array_equal(first.lines[1].get_ydata(), rates / 2)
    assert first.get_ylim() == second.get_ylim()
    assert first.get_ylim()[0] == 0
