"""The export under the TensorFlow that the newest TensorFlow Serving is made of.

`make test-serving` makes an environment of it, and names its Python in TFNMT_SERVING_PYTHON.
"""

import os
import subprocess
from itertools import islice
from pathlib import Path

import pytest

from tfnmt.data import toy
from tfnmt.exporting.models import find_run
from tfnmt.exporting.parity import certify
from tfnmt.exporting.saved_model import ServedTranslator

PYTHON = os.environ.get("TFNMT_SERVING_PYTHON", "")


@pytest.mark.skipif(not PYTHON, reason="make test-serving runs it, in a second environment")
def test_the_server_s_tensorflow_answers_as_ours(tiny_run: Path, tiny_export: Path) -> None:
    versions = subprocess.run(
        [PYTHON, "-c", "import tensorflow, tensorflow_text\n"
         "print(tensorflow.__version__, tensorflow_text.__version__)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert versions.stdout.split() == ["2.20.0", "2.20.1"]
    graphs = ServedTranslator(find_run(tiny_run).load_translator(), {}).graphs
    graphs.pop("info")  # another card
    texts = [source for source, _ in islice(toy.pairs("test"), 100)]
    certificate = certify(graphs, [*texts, "", "a " * 400], tiny_export / "1", PYTHON)
    assert certificate["texts"] == 102
