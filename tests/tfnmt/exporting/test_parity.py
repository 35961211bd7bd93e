"""The certificate: what is not the same is not published."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tfnmt.config import build_config, preset_path, read_tree
from tfnmt.data.preparation.tokenizer import Tokenizer
from tfnmt.decoding.translator import Translator
from tfnmt.errors import UserError
from tfnmt.exporting import answer_calls
from tfnmt.exporting.parity import (
    COUNT,
    HARD,
    _compare,
    _report,
    _unserved,
    calls_of,
    certify,
    fresh_process,
    parity_texts,
)
from tfnmt.exporting.saved_model import publish, served_graphs
from tfnmt.loading.card import make_card
from tfnmt.loading.models import find_run
from tfnmt.runs.run import Run

TEXTS = ["the dog sleeps in the house", "", "a cat"]
REPORT = {"text_operations": [], "operations": [], "bound": [], "ours": []}


@pytest.fixture(scope="module")
def translator(tiny_run: Path) -> Translator:
    return find_run(tiny_run).load_translator()


def certified(graphs: dict[str, Any], folder: Path) -> dict[str, Any]:
    with fresh_process(answer_calls.__file__) as ask:
        return certify(graphs, calls_of(graphs, TEXTS), folder, ask)


def test_an_export_of_other_weights_is_refused_with_the_first_difference(
    translator: Translator, tiny_export: Path
) -> None:
    graphs = served_graphs(translator, {})
    graphs.pop("info")  # another card
    asked = [len(inputs["text"]) for name, inputs in calls_of(graphs, TEXTS) if name == "greedy"]
    assert sum(asked) == 3
    assert certified(graphs, tiny_export / "1")["calls"] == len(asked) * len(graphs)
    weights = translator.transformer.output_embedding.table
    before = weights.numpy()
    weights.assign(before + 0.1 * np.random.default_rng(0).standard_normal(before.shape))
    try:
        with pytest.raises(UserError, match=r"\.\w+: the run says .*, the export .*, of \{"):
            certified(graphs, tiny_export / "1")
    finally:
        weights.assign(before)


def test_what_differs_is_not_published(
    translator: Translator, tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfnmt.exporting.parity.TOLERANCE", -1.0)
    model = find_run(tiny_run)
    card = make_card(model.run, model.config, model.step)
    with pytest.raises(UserError, match="nothing was published"):
        publish(translator, card, TEXTS, tmp_path / "1")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("ours", "theirs", "message"),
    [
        (np.array([b"a", b"b"]), np.array([b"a", b"c"]), 'run says "b", the export "c"'),
        (np.array([1, 2]), np.array([1, 3]), 'run says "2"'),
        (np.array([1.0, 2.0]), np.array([1.0, 2.001]), 'run says "2.0"'),
        (np.array([1.0, 2.0]), np.array([1.0, np.nan]), 'the export "nan"'),
        (np.array([1.0, 2.0]), np.array([1.0, -np.inf]), 'the export "-inf"'),
        (np.zeros([2, 3]), np.zeros([2, 4]), r"shape \(2, 4\)"),
    ],
)  # fmt: skip
def test_every_kind_of_difference_is_seen(ours: Any, theirs: Any, message: str) -> None:
    inputs = {"text": np.array([b"one", b"two"], object)}
    assert _compare("greedy", inputs, {"x": ours}, {"x": ours}) == 0
    with pytest.raises(UserError, match=message):
        _compare("greedy", inputs, {"x": ours}, {"x": theirs})


def test_what_is_no_number_on_both_sides_is_not_published() -> None:
    nothing = {"x": np.array([np.nan])}
    with pytest.raises(UserError, match="nothing was published"):
        _compare("greedy", {"text": np.array([b"one"], object)}, nothing, nothing)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"text_operations": ["SentencepieceOp"]}, []),
        ({"text_operations": ["TFText>RoundRobinTrim"]}, ["operation TFText>RoundRobinTrim"]),
        ({"operations": ["MatMul", "EagerPyFunc"]}, ["operation EagerPyFunc"]),
        ({"bound": ["x is bound to /GPU:0"]}, ["x is bound to /GPU:0"]),
        ({"ours": ["tfnmt"]}, ["the fresh process has imported tfnmt"]),
    ],
)
def test_what_a_server_cannot_run_is_seen(change: dict[str, Any], told: list[str]) -> None:
    assert _unserved({**REPORT, **change}) == told


def test_a_graph_for_one_device_or_for_xla_is_refused(tmp_path: Path) -> None:
    module = tf.Module()
    module.weight = tf.Variable(1.0)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="text")])
    def placed(text: Any) -> Any:
        with tf.device("/GPU:0"):
            return {"twice": 2 * text + module.weight}

    compiled = tf.function(
        lambda text: {"twice": 2 * text + module.weight},
        input_signature=[tf.TensorSpec([None], tf.float32, name="text")], jit_compile=True,
    )  # fmt: skip
    module.graphs = {"placed": placed, "compiled": compiled}
    tf.saved_model.save(module, str(tmp_path / "1"), signatures=module.graphs)
    calls = [("placed", {"text": np.ones(2, "f4")})]
    with fresh_process(answer_calls.__file__) as ask:
        bound = _report(tmp_path / "1", calls, ask)["bound"]
    assert any("is bound to" in line for line in bound)
    assert any("is compiled by XLA" in line for line in bound)


def script(folder: Path, *lines: str) -> str:
    path = folder / "script.py"
    path.write_text("\n".join(["import json, sys", *lines]))
    return str(path)


def test_it_prints_what_it_makes_of_its_arguments(tmp_path: Path) -> None:
    reversing = script(tmp_path, "print(*reversed(json.load(sys.stdin)))")
    with fresh_process(reversing) as ask:
        assert ask("no answer", "a b", Path("c"), 1) == "1 c a b\n"


def test_its_last_words_are_told_where_it_fails(tmp_path: Path) -> None:
    failing = script(tmp_path, "sys.exit('first\\n' + json.load(sys.stdin)[0] + ' is missing')")
    told = pytest.raises(UserError, match=r"^no answer: x is missing$")
    with fresh_process(failing) as ask, told:
        ask("no answer", "x")


def test_one_that_dies_before_it_is_asked_is_told_as_well(tmp_path: Path) -> None:
    told = pytest.raises(UserError, match=r"no answer: ModuleNotFoundError.*nothing_of_this_name")
    with fresh_process(script(tmp_path, "import nothing_of_this_name")) as ask, told:
        ask("no answer", "x" * 1_000_000)


def test_one_that_is_never_asked_ends(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    noting = script(tmp_path, "import os", f"open({str(fifo)!r}, 'w').write(str(os.getpid()))",
                    "sys.stdin.read()")  # fmt: skip
    with fresh_process(noting):
        process = int(fifo.read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def tokenizer(run: Path) -> Tokenizer:
    return Tokenizer(Run(run).tokenizer_model())


def test_the_validation_text_comes_first(tiny_run: Path, tmp_path: Path) -> None:
    texts = parity_texts(Run(tiny_run).config(), tokenizer(tiny_run), tmp_path)
    assert len(texts) == COUNT + len(HARD)
    assert texts[-len(HARD) :] == list(HARD)
    assert all(text.endswith((".", "?", "!")) for text in texts[:COUNT])


@pytest.mark.parametrize("preset", ["multi30k", "wmt14"])
def test_where_it_is_not_at_hand_texts_are_drawn_the_same_each_time(
    tiny_run: Path, tmp_path: Path, preset: str
) -> None:
    config, pieces = build_config(read_tree(preset_path(preset))), tokenizer(tiny_run)
    texts = parity_texts(config, pieces, tmp_path)
    assert texts == parity_texts(config, pieces, tmp_path)
    assert len(texts) == COUNT + len(HARD)
    assert len(set(texts)) > COUNT
    assert texts[-len(HARD) :] == list(HARD)
    lengths = list(map(len, pieces.encode(texts[:COUNT])))
    assert min(lengths) < 5
    assert max(lengths) > 40
