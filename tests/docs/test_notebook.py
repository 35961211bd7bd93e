"""The notebook runs, with a shorter training than a reader's."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT

NOTEBOOK = ROOT / "docs" / "notebooks" / "transformer.ipynb"
MAX_BYTES = 400_000
PICTURES = 4

Cell = dict[str, Any]


def outputs_of(cells: list[Cell]) -> tuple[str, int]:
    """Return the printed text of cells without warnings, and the number of their pictures."""
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    assert "stderr" not in [output.get("name") for output in outputs]
    printed = "".join("".join(each.get("text", "")) for each in outputs)
    return printed, sum("image/png" in each.get("data", {}) for each in outputs)


def losses(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"loss ([\d.]+)", text)]


def test_notebook_is_small_and_shows_its_results() -> None:
    assert NOTEBOOK.stat().st_size < MAX_BYTES
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    text, pictures = outputs_of(cells)
    assert losses(text)[-1] < 1
    assert pictures == PICTURES


@pytest.mark.slow
def test_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reason = "not installed; install the extra dev"
    nbformat = pytest.importorskip("nbformat", reason=f"nbformat: {reason}")
    client = pytest.importorskip("nbclient", reason=f"nbclient: {reason}")
    pytest.importorskip("ipykernel", reason=f"ipykernel: {reason}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    (parameters,) = (
        cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ())
    )
    parameters.source = "PAIRS, STEPS = 4000, 40"
    client.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": ROOT}}).execute()
    text, pictures = outputs_of(notebook.cells)
    assert pictures == PICTURES
    assert text.count("same") == len(re.findall(r"same.*: True", text)) == 4
    assert losses(text)[-1] < losses(text)[0]
