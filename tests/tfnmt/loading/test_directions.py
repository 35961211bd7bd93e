from pathlib import Path

import pytest

from tfnmt.errors import UsageError
from tfnmt.loading.directions import bound_language, find_direction, find_target
from tfnmt.loading.models import find_run


def test_single_direction_needs_no_flag(tiny_run: Path) -> None:
    model = find_run(tiny_run)
    assert model.targets == ()
    assert find_target(model, None, None) == "de"
    assert find_direction(model, None) == ("en", "de")
    assert bound_language(model, "de") is None


def test_several_directions_name_their_target(two_way_run: Path) -> None:
    model = find_run(two_way_run)
    assert model.targets == ("de", "en")
    assert find_target(model, None, "en") == "en"
    assert find_direction(model, "de-en") == ("de", "en")
    assert bound_language(model, "en") == "en"


@pytest.mark.parametrize("direction", ["", "-", "de", "-de", "de-", "de-de", "en-fr", "en-de-en"])
def test_unknown_direction_is_refused(two_way_run: Path, direction: str) -> None:
    with pytest.raises(UsageError, match=r"^--direction=.* has en-de, de-en; "):
        find_direction(find_run(two_way_run), direction)
