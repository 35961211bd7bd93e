"""The export, as somebody meets it who has TensorFlow and its text operations, but not tfnmt."""

import json
import subprocess
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tfnmt import export
from tfnmt.data import toy
from tfnmt.decoding.translator import Translator, load_translator
from tfnmt.errors import UserError
from tfnmt.run import Run

Call = Callable[..., None]
SENTENCES = [source for source, _ in islice(toy.pairs("test"), 196)]
SENTENCES += ["", "  ", "Ünseen wörds 😀", "a " * 400]

FRESH_PROCESS = """
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
        answer["score"].numpy().tolist(), answer["truncated"].numpy().tolist(),
    ]
json.dump(answers, sys.stdout)
"""


@pytest.fixture(scope="module")
def translator(tiny_run: Path) -> Translator:
    run = Run(tiny_run)
    config = run.config()
    return load_translator(run.weights(), config, run.tokenizer_path.read_bytes())


def test_200_strings_and_scores_equal_those_of_the_translator(
    tiny_export: Path, translator: Translator, tmp_path: Path
) -> None:
    assert len(SENTENCES) == 200
    moved = tmp_path / "elsewhere"
    moved.symlink_to(tiny_export / "1")
    process = subprocess.run(
        [sys.executable, "-c", FRESH_PROCESS, str(moved)], input=json.dumps(SENTENCES),
        capture_output=True, text=True, check=True, cwd=tmp_path, timeout=300,
    )  # fmt: skip
    answers = json.loads(process.stdout)
    for name, ours in (("serving_default", translator.translate), ("greedy", translator.greedy)):
        texts, scores, truncated = answers[name]
        expected = ours(tf.constant(SENTENCES))
        assert texts == [text.decode() for text in expected["translation"].numpy()]
        np.testing.assert_allclose(scores, expected["score"], atol=1e-4)
        assert truncated == expected["truncated"].numpy().tolist()
        assert truncated.count(True) == 1


def test_signatures_take_text_and_give_a_row_a_text(tiny_export: Path) -> None:
    loaded = tf.saved_model.load(str(tiny_export / "1"))
    for name in ("greedy", "serving_default"):
        signature = loaded.signatures[name]
        assert list(signature.structured_input_signature[1]) == ["text"]
        for output in ("translation", "score", "truncated"):
            assert signature.structured_outputs[output].shape.as_list() == [None]


def test_the_card_tells_languages_configuration_and_step(tiny_export: Path, tiny_run: Path) -> None:
    card = json.loads((tiny_export / "1" / "assets.extra" / "model_card.json").read_text())
    assert (card["source"], card["target"], card["step"]) == ("en", "de", 12)
    assert card["config"] == Run(tiny_run).config().model_dump(mode="json")


def test_the_next_export_is_the_next_version(call: Call, tiny_run: Path, tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    call(export, f"--model={tiny_run}", f"--output={tmp_path}")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["7", "8"]
    assert (tmp_path / "8" / "saved_model.pb").is_file()


def test_a_folder_that_cannot_be_written_is_told(
    call: Call, tiny_run: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file/1"):
        call(export, f"--model={tiny_run}", f"--output={tmp_path / 'file'}")
