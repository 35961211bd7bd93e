import numpy as np
import pytest

from tfnmt.model.embedding import sinusoids
from tfnmt.plots.positions import draw_positions


@pytest.mark.parametrize(("length", "d_model"), [(100, 64), (7, 2), (30, 512)])
def test_heat_map_shows_every_value_and_curves_are_its_rows(length: int, d_model: int) -> None:
    encoding = np.array(sinusoids(np.arange(length), d_model))
    above, below, _ = draw_positions(encoding).axes
    np.testing.assert_array_equal(above.images[0].get_array(), encoding.T)
    assert [*above.images[0].get_extent()] == [-0.5, length - 0.5, d_model - 0.5, -0.5]
    for line in below.lines:
        dimension = int(line.get_label().split()[1])
        assert dimension % 2 == 0
        np.testing.assert_array_equal(line.get_ydata(), encoding[:, dimension])


def test_color_scale_does_not_depend_on_the_values() -> None:
    (image,) = draw_positions(np.full((3, 4), 0.1)).axes[0].images
    assert image.get_clim() == (-1, 1)
