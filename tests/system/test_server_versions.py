"""The export in the TensorFlow version that the newest TensorFlow Serving contains.

`make test-serving` creates an environment with it and sets TFNMT_SERVING_PYTHON to its Python.
"""

import os
import subprocess
from itertools import islice
from pathlib import Path

import pytest

from tfnmt.data.corpora.toy import grammar
from tfnmt.exporting import answer_calls
from tfnmt.exporting.parity import check_parity, clean_process, make_calls
from tfnmt.exporting.saved_model import served_graphs
from tfnmt.loading.models import find_run

PYTHON = os.environ.get("TFNMT_SERVING_PYTHON", "")


@pytest.mark.skipif(not PYTHON, reason="only make test-serving runs it, in a second environment")
def test_export_gives_equal_outputs_in_the_tensorflow_of_the_server(
    tiny_run: Path, tiny_export: Path
) -> None:
    code = (
        "import tensorflow, tensorflow_text\n"
        "print(tensorflow.__version__, tensorflow_text.__version__)"
    )
    versions = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=True)
    assert versions.stdout.split() == ["2.20.0", "2.20.1"]
    graphs = served_graphs(find_run(tiny_run).load_translator(), {})
    graphs.pop("info")  # its card differs
    texts = [source for source, _ in islice(grammar.pairs("test"), 100)]
    with clean_process(answer_calls.__file__, PYTHON) as run_script:
        calls = make_calls(graphs, [*texts, "", "a " * 400])
        report = check_parity(graphs, calls, tiny_export / "1", run_script)
    assert sum(len(inputs["text"]) for name, inputs in calls if name == "greedy") == 102
    assert report["calls"] == len(calls)
