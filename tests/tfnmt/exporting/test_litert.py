"""LiteRT exports: outputs, quantization and the parity check."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tensorflow.lite.tools import flatbuffer_utils

from tfnmt import evaluate, export, translate
from tfnmt.errors import UserError
from tfnmt.exporting.litert_parity import _check_equal
from tfnmt.litert.files import GRAPHS
from tfnmt.litert.model import LiteRTModel

pytestmark = pytest.mark.slow  # an export is converted

Call = Callable[..., None]

TEXTS = ["She knows that the dog sleeps.", "", "the old king sees a small cat"]


def test_commands_give_the_output_of_the_run(
    call: Call, tiny_run: Path, tiny_litert: Path, tmp_path: Path
) -> None:
    (tmp_path / "in").write_text("".join(f"{text}\n" for text in TEXTS))
    for flag in "--json", "--scores", "--nbest=2":
        for model, output in (tiny_run, "run"), (tiny_litert.parent, "litert"):
            call(
                translate,
                f"--model={model}",
                f"--input={tmp_path / 'in'}",
                f"--output={tmp_path / output}",
                flag,
            )
        outputs = ((tmp_path / name).read_text().splitlines() for name in ("run", "litert"))
        for ours, theirs in zip(*outputs, strict=True):
            if flag == "--scores":
                assert ours.partition("\t")[2] == theirs.partition("\t")[2]
            else:
                translations = (json.loads(line)["translations"] for line in (ours, theirs))
                texts = [[each["text"] for each in found] for found in translations]
                assert texts[0] == texts[1]


def test_evaluation_has_the_scores_of_the_run(
    call: Call, tiny_run: Path, tiny_litert: Path, tmp_path: Path
) -> None:
    for side, text in ("en", TEXTS[0]), ("de", "Sie weiß, dass der Hund schläft."):
        (tmp_path / f"t.{side}").write_text(f"{text}\n")
    scores = []
    for model in tiny_run, tiny_litert:
        test = f"--test={tmp_path / 't.en'},{tmp_path / 't.de'}"
        call(evaluate, f"--model={model}", test, f"--json={tmp_path / 'scores'}")
        scores.append(json.loads((tmp_path / "scores").read_text()))
    assert scores[0]["bleu"] == scores[1]["bleu"]
    assert scores[1]["averaged_steps"] == [6, 12]


def test_quantized_export_has_smaller_weights_and_says_how_it_translates(
    call: Call, tiny_run: Path, tmp_path: Path
) -> None:
    sizes = {}
    for quantization in "float32", "float16", "int8":
        flags = f"--model={tiny_run}", f"--output={tmp_path / quantization}", "--format=litert"
        call(export, *flags, f"--quantization={quantization}")
        version = tmp_path / quantization / "1"
        buffers = flatbuffer_utils.read_model(str(version / GRAPHS)).buffers
        sizes[quantization] = sum(len(each.data) for each in buffers if each.data is not None)
        model = LiteRTModel(version, 1)
        assert model.card["quantization"] == quantization
        assert model.card["parity"] == json.loads((version / "parity.json").read_text())
        found = model.signatures["serving_default"](text=[text.encode() for text in TEXTS])
        assert np.isfinite(found["score"]).all()
    assert max(sizes["int8"], sizes["float16"]) < sizes["float32"]


def test_process_of_the_parity_check_imports_no_tensorflow(tiny_litert: Path) -> None:
    report = json.loads((tiny_litert / "parity.json").read_text())
    assert set(report["imported_packages"]) == {"ai_edge_litert", "numpy", "sentencepiece", "tfnmt"}


def test_export_that_differs_from_its_run_is_refused() -> None:
    lengths = {name: np.array([1]) for name in ("source_length", "target_length")}
    expected = {"token_log_probs": np.array([[-1.0, 0.0]], np.float32), **lengths}
    _check_equal("align", expected, {**expected, "token_log_probs": np.array([[-1.0, 9.0]])})
    for wrong in -1.1, np.nan:
        found = {**expected, "token_log_probs": np.array([[wrong, 0.0]], np.float32)}
        with pytest.raises(UserError, match=r"^align\.token_log_probs: "):
            _check_equal("align", expected, found)
