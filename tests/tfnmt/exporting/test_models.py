import shutil
from pathlib import Path

import pytest

from tfnmt.errors import UserError
from tfnmt.exporting.models import find_run


def test_weights_that_a_training_has_replaced_meanwhile_are_told(
    tiny_run: Path, tmp_path: Path
) -> None:
    model = find_run(shutil.copytree(tiny_run, tmp_path / "run"))
    shutil.rmtree(model.weights.parent)
    with pytest.raises(UserError, match="newer ones: try again"):
        model.load_translator()
