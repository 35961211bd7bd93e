from concurrent.futures import ThreadPoolExecutor
from xml.etree import ElementTree

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from tfnmt.plots.style import styled, to_png, to_svg


def draw(slope: float = 1.0) -> Figure:
    with styled():
        figure = Figure(figsize=(3, 2), layout="constrained")
        axes = figure.subplots()
        axes.plot(slope * np.arange(5.0), label="a line")
        axes.set(title="$x", xlabel="step")
        axes.legend()
    return figure


def test_equal_figures_give_equal_files() -> None:
    for to_file in (to_png, to_svg):
        assert to_file(draw()) == to_file(draw())
        assert to_file(draw()) != to_file(draw(slope=-1.0))


def test_files_have_the_expected_formats() -> None:
    assert to_png(draw()).startswith(b"\x89PNG")
    assert ElementTree.fromstring(to_svg(draw())).tag.endswith("svg")


def test_files_contain_neither_date_nor_matplotlib_version() -> None:
    assert b"dc:date" not in to_svg(draw())
    for file in (to_png(draw()), to_svg(draw())):
        assert f"v{matplotlib.__version__}".encode() not in file
        assert f"version{matplotlib.__version__}".encode() not in file


def test_user_settings_have_no_effect_and_stay_unchanged() -> None:
    expected = to_png(draw())
    with matplotlib.rc_context({"figure.facecolor": "black", "font.size": 30, "savefig.dpi": 20}):
        assert to_png(draw()) == expected
        assert matplotlib.rcParams["font.size"] == 30
    assert matplotlib.rcParams["svg.hashsalt"] is None


def test_concurrent_threads_draw_equal_figures() -> None:
    expected = to_svg(draw())
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda _: to_svg(draw()), range(5))) == {expected}


def test_21_lines_have_distinct_styles() -> None:
    with styled():
        axes = Figure().subplots()
        lines = [axes.plot([0, 1])[0] for _ in range(21)]
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 21
