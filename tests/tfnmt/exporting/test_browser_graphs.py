"""Graphs for LiteRT.js: outputs of constant shapes that begin with those of the original."""

from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

from tfnmt.exporting.browser_graphs import browser_graphs, read_shapes
from tfnmt.litert.files import GRAPHS
from tfnmt.loading.models import find_folder
from tfnmt.loading.registry import DEFAULT_MODEL

LONGEST = {"source": 20, "target": 30, "room": 40}


@pytest.fixture(scope="module")
def graphs() -> Path:
    return find_folder(DEFAULT_MODEL) / GRAPHS


def test_shapes_name_the_inputs_that_axes_belong_to(graphs: Path) -> None:
    shapes = read_shapes(graphs)
    assert shapes["search"]["inputs"] == {"source": [1, "source"], "room": ["room"], "count": []}
    assert shapes["search"]["outputs"]["tokens"] == [1, 4, "room"]
    assert shapes["search"]["outputs"]["scores"] == [1, 4]
    assert shapes["attention"]["outputs"] == {
        "encoder": [1, 4, 4, "source", "source"],
        "decoder": [1, 2, 4, "target", "target"],
        "cross": [1, 2, 4, "target", "source"],
    }


def test_outputs_are_padded_to_constant_shapes(graphs: Path, tmp_path: Path) -> None:
    content, shapes = browser_graphs(graphs, LONGEST)
    (tmp_path / GRAPHS).write_bytes(content)
    original, padded = (Interpreter(str(path)) for path in (graphs, tmp_path / GRAPHS))
    source, target = np.array([[4, 300, 301, 2]], np.int32), np.array([[310, 311, 2]], np.int32)
    inputs = {
        "search": {"source": source, "room": np.zeros(9, np.int32), "count": np.int32(2)},
        "greedy": {"source": source, "room": np.zeros(9, np.int32)},
        "align": {"source": source, "target": target},
        "attention": {"source": source, "target": target},
    }
    for name, values in inputs.items():
        arrays = {key: np.asarray(value) for key, value in values.items()}
        expected = original.get_signature_runner(name)(**arrays)
        runner = padded.get_signature_runner(name)
        found = runner(**arrays)
        for key, value in expected.items():
            shape = [LONGEST.get(size, size) for size in shapes[name]["outputs"][key]]
            assert list(found[key].shape) == shape
            assert -1 not in runner.get_output_details()[key]["shape_signature"]
            part = tuple(map(slice, value.shape))
            np.testing.assert_array_equal(found[key][part], value)
            found[key][part] = 0
            assert not found[key].any()
