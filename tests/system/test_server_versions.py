"""The export under the TensorFlow that the newest TensorFlow Serving is made of.

`make test-serving` makes an environment of it, and names its Python in TFNMT_SERVING_PYTHON.
"""

import os
import subprocess
from itertools import islice
from pathlib import Path

import pytest

from tfnmt.data.corpora.toy import grammar
from tfnmt.exporting import answer_calls
from tfnmt.exporting.parity import calls_of, certify, fresh_process
from tfnmt.exporting.saved_model import served_graphs
from tfnmt.loading.models import find_run

PYTHON = os.environ.get("TFNMT_SERVING_PYTHON", "")


@pytest.mark.skipif(not PYTHON, reason="make test-serving runs it, in a second environment")
def test_the_server_s_tensorflow_answers_as_ours(tiny_run: Path, tiny_export: Path) -> None:
    versions = subprocess.run(
        [PYTHON, "-c", "import tensorflow, tensorflow_text\n"
         "print(tensorflow.__version__, tensorflow_text.__version__)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert versions.stdout.split() == ["2.20.0", "2.20.1"]
    graphs = served_graphs(find_run(tiny_run).load_translator(), {})
    graphs.pop("info")  # another card
    texts = [source for source, _ in islice(grammar.pairs("test"), 100)]
    with fresh_process(answer_calls.__file__, PYTHON) as ask:
        calls = calls_of(graphs, [*texts, "", "a " * 400])
        certificate = certify(graphs, calls, tiny_export / "1", ask)
    assert sum(len(inputs["text"]) for name, inputs in calls if name == "greedy") == 102
    assert certificate["calls"] == len(calls)
