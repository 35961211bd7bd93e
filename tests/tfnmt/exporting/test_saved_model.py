"""The export as a user sees it who has TensorFlow and its text operations, but not tfnmt."""

import json
import subprocess
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tfnmt import export
from tfnmt.data.corpora.toy import grammar
from tfnmt.decoding.signatures import SIGNATURES
from tfnmt.decoding.translator import Translator, load_translator
from tfnmt.errors import UsageError, UserError
from tfnmt.loading.models import find_version, versions_in
from tfnmt.runs.run import Run

Call = Callable[..., None]
SENTENCES = [source for source, _ in islice(grammar.pairs("test"), 196)]
SENTENCES += ["", "  ", "Ünseen wörds 😀", "a " * 400]

CLEAN_PROCESS = """
import json, sys
import tensorflow as tf, tensorflow_text
assert "tfnmt" not in sys.modules and "keras_nlp" not in sys.modules
loaded = tf.saved_model.load(sys.argv[1])
texts = json.load(sys.stdin)
answers = {}
for name in ("serving_default", "greedy"):
    answer = loaded.signatures[name](text=tf.constant(texts))
    answers[name] = [
        [text.decode() for text in answer["translation"].numpy()],
        answer["score"].numpy().tolist(),
        answer["truncated"].numpy().tolist(),
    ]
json.dump(answers, sys.stdout)
"""


@pytest.fixture(scope="module")
def translator(tiny_run: Path) -> Translator:
    run = Run(tiny_run)
    config = run.config()
    return load_translator(run.weights(), config, run.tokenizer_model())


@pytest.mark.slow
def test_export_gives_the_strings_and_scores_of_the_translator_for_200_texts(
    tiny_export: Path, translator: Translator, tmp_path: Path
) -> None:
    assert len(SENTENCES) == 200
    moved = tmp_path / "elsewhere"
    moved.symlink_to(tiny_export / "1")
    process = subprocess.run(
        [sys.executable, "-c", CLEAN_PROCESS, str(moved)],
        input=json.dumps(SENTENCES),
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        timeout=300,
    )
    answers = json.loads(process.stdout)
    for name, ours in (("serving_default", translator.translate), ("greedy", translator.greedy)):
        texts, scores, truncated = answers[name]
        expected = ours(tf.constant(SENTENCES))
        assert texts == [text.decode() for text in expected["translation"].numpy()]
        np.testing.assert_allclose(scores, expected["score"], atol=1e-4)
        assert truncated == expected["truncated"].numpy().tolist()
        assert truncated.count(True) == 1


def test_translation_signatures_map_each_text_to_a_row(tiny_export: Path) -> None:
    loaded = tf.saved_model.load(str(tiny_export / "1"))
    for name in ("greedy", "serving_default"):
        signature = loaded.signatures[name]
        assert list(signature.structured_input_signature[1]) == ["text"]
        for output in ("translation", "score", "truncated"):
            assert signature.structured_outputs[output].shape.as_list() == [None]


@pytest.fixture(scope="module")
def served(tiny_export: Path) -> Any:
    return tf.saved_model.load(str(tiny_export / "1"))


def test_export_has_exactly_the_documented_signatures(served: Any) -> None:
    found = {
        name: (set(signature.structured_input_signature[1]), set(signature.structured_outputs))
        for name, signature in served.signatures.items()
    }
    assert found == {name: tuple(map(set, spec)) for name, spec in SIGNATURES.items()}
    for signature in served.signatures.values():
        inputs = signature.structured_input_signature[1].values()
        for spec in (*inputs, *signature.structured_outputs.values()):
            assert spec.shape.rank >= 1  # no scalar; dimension 0 is the batch
            assert spec.shape[0] is None
        assert not any(name.endswith("_bytes") for name in signature.structured_outputs)


def test_tokenize_search_and_detokenize_together_equal_serving_default(served: Any) -> None:
    text = tf.constant(SENTENCES[:20])
    call = served.signatures
    source = call["tokenize"](text=text)
    found = call["search"](tokens=source["tokens"])
    whole = call["serving_default"](text=text)
    translation = call["detokenize"](tokens=found["tokens"])["translation"]
    np.testing.assert_array_equal(translation, whole["translation"])
    np.testing.assert_allclose(found["score"], whole["score"], atol=1e-6)
    np.testing.assert_array_equal(source["truncated"], whole["truncated"])


def test_merged_requests_get_the_same_results_as_separate_ones(served: Any) -> None:
    """The server concatenates the rows of requests, and repeats row 0 up to an allowed size."""
    requests = [SENTENCES[:3], SENTENCES[50:51], SENTENCES[-4:]]
    rows = [text for request in requests for text in request]
    rows += rows[:1] * (16 - len(rows))
    for name in ("serving_default", "greedy", "nbest"):
        call = served.signatures[name]
        merged = {key: value.numpy() for key, value in call(text=tf.constant(rows)).items()}
        start = 0
        for request in requests:
            alone = call(text=tf.constant(request))
            for key, value in merged.items():
                part = value[start : start + len(request)]
                if key == "tokens":  # other rows change only the padding
                    width = alone[key].shape[2]
                    assert not part[:, :, width:].any()
                    part = part[:, :, :width]
                if value.dtype.kind == "f":
                    np.testing.assert_allclose(part, alone[key], atol=1e-4)
                else:
                    np.testing.assert_array_equal(part, alone[key])
            start += len(request)


@pytest.mark.parametrize("name", [name for name, spec in SIGNATURES.items() if spec.takes_text])
def test_signature_maps_an_empty_batch_to_an_empty_batch(served: Any, name: str) -> None:
    empty = {key: tf.constant([], tf.string) for key in SIGNATURES[name].inputs}
    for value in served.signatures[name](**empty).values():
        assert value.shape[0] == 0


def test_info_returns_the_model_card(served: Any, tiny_export: Path) -> None:
    cards = served.signatures["info"](text=tf.constant(["", "x"]))["card"].numpy()
    card = json.loads((tiny_export / "1" / "assets.extra" / "model_card.json").read_text())
    assert [json.loads(each) for each in cards] == [card, card]


def test_export_contains_its_parity_report(tiny_export: Path) -> None:
    report = json.loads((tiny_export / "1" / "assets.extra" / "parity.json").read_text())
    assert report["texts"] > 200
    assert set(report["largest_difference"]) == set(SIGNATURES)
    assert max(report["largest_difference"].values()) <= 1e-4
    assert report["warm_up_requests"] == 21
    assert "SentencepieceTokenizeOp" in report["operations"]


def test_export_card_has_languages_configuration_and_step(
    tiny_export: Path, tiny_run: Path
) -> None:
    card = json.loads((tiny_export / "1" / "assets.extra" / "model_card.json").read_text())
    assert (card["source"], card["target"], card["step"]) == ("en", "de", 12)
    assert card["config"] == Run(tiny_run).config().model_dump(mode="json")


@pytest.mark.slow
def test_export_writes_the_next_version_and_removes_old_ones(
    call: Call, tiny_run: Path, tmp_path: Path
) -> None:
    for version in ("3", "7"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "saved_model.pb").write_text("")
    for other in ("2024", "0005", "\N{SUPERSCRIPT TWO}"):
        (tmp_path / other).mkdir()  # names that are no versions of an export
    (tmp_path / "0005" / "saved_model.pb").write_text("")
    with pytest.raises(UsageError, match=r"--version=7: .*/7 already exists"):
        call(export, f"--model={tiny_run}", f"--output={tmp_path}", "--version=7")
    with pytest.raises(
        UsageError, match=r"--keep=1: would remove the new version 5, .* version 7 "
    ):
        call(export, f"--model={tiny_run}", f"--output={tmp_path}", "--version=5", "--keep=1")
    call(export, f"--model={tiny_run}", f"--output={tmp_path}", "--keep=2")
    assert versions_in(tmp_path) == [7, 2025]
    assert {path.name for path in tmp_path.iterdir()} == {
        "7",
        "2025",
        "2024",
        "0005",
        "\N{SUPERSCRIPT TWO}",
    }
    assert find_version(tmp_path) == tmp_path / "2025"


def test_export_names_a_folder_that_it_cannot_write(
    call: Call, tiny_run: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file/export: "):
        call(export, f"--model={tiny_run}", f"--output={tmp_path / 'file' / 'export'}")
