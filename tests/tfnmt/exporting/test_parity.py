"""The parity check: an export that differs from its run is not published."""

import os
import pickle
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
    HARD_TEXTS,
    TEXT_COUNT,
    RunScript,
    _compare,
    _run_calls,
    _unsupported,
    check_parity,
    clean_process,
    make_calls,
    parity_texts,
)
from tfnmt.exporting.saved_model import publish, served_graphs
from tfnmt.loading.card import make_card
from tfnmt.loading.models import find_run
from tfnmt.runs.run import Run

TEXTS = ["the dog sleeps in the house", "", "a cat"]
ANSWER = {
    "text_operations": [],
    "operations": [],
    "device_specific": [],
    "forbidden_imports": [],
}


@pytest.fixture(scope="module")
def translator(tiny_run: Path) -> Translator:
    return find_run(tiny_run).load_translator()


def fixed_answer(outputs: list[dict[str, Any]]) -> RunScript:
    """Return a script that gives these outputs, without the start of a process."""

    def run_script(problem: str, folder: Path, calls: Path, answers: Path) -> str:
        del problem, folder, calls
        answers.write_bytes(pickle.dumps({**ANSWER, "outputs": outputs}))
        return ""

    return run_script


def test_check_parity_reports_the_first_difference_to_an_export_of_other_weights(
    translator: Translator, tiny_export: Path
) -> None:
    # Not all signatures, to save time: the export itself was published after a check of all.
    served = served_graphs(translator, {})
    graphs = {name: served[name] for name in ("tokenize", "greedy", "align")}
    calls = make_calls(graphs, TEXTS)
    rows = [len(inputs["text"]) for name, inputs in calls if name == "greedy"]
    assert sum(rows) == 3
    run_script = fixed_answer(answer_calls._run(str(tiny_export / "1"), calls))
    report = check_parity(graphs, calls, tiny_export / "1", run_script)
    assert report["calls"] == len(rows) * len(graphs)
    weights = translator.transformer.output_embedding.table
    before = weights.numpy()
    weights.assign(before + 0.1 * np.random.default_rng(0).standard_normal(before.shape))
    try:
        with pytest.raises(UserError, match=r"\.\w+: the run returns .*, the export .* for \{"):
            check_parity(graphs, calls, tiny_export / "1", run_script)
    finally:
        weights.assign(before)


@pytest.mark.slow
def test_publish_leaves_nothing_if_the_export_differs(
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
        (np.array([b"a", b"b"]), np.array([b"a", b"c"]), 'run returns "b", the export "c"'),
        (np.array([1, 2]), np.array([1, 3]), 'run returns "2"'),
        (np.array([1.0, 2.0]), np.array([1.0, 2.001]), 'run returns "2.0"'),
        (np.array([1.0, 2.0]), np.array([1.0, np.nan]), 'the export "nan"'),
        (np.array([1.0, 2.0]), np.array([1.0, -np.inf]), 'the export "-inf"'),
        (np.zeros([2, 3]), np.zeros([2, 4]), r"shape \(2, 4\)"),
    ],
)
def test_compare_finds_every_kind_of_difference(ours: Any, theirs: Any, message: str) -> None:
    inputs = {"text": np.array([b"one", b"two"], object)}
    assert _compare("greedy", inputs, {"x": ours}, {"x": ours}) == 0
    with pytest.raises(UserError, match=message):
        _compare("greedy", inputs, {"x": ours}, {"x": theirs})


def test_compare_refuses_nan_on_both_sides() -> None:
    nothing = {"x": np.array([np.nan])}
    with pytest.raises(UserError, match="nothing was published"):
        _compare("greedy", {"text": np.array([b"one"], object)}, nothing, nothing)


@pytest.mark.parametrize(
    ("change", "problems"),
    [
        ({"text_operations": ["SentencepieceOp"]}, []),
        ({"text_operations": ["TFText>RoundRobinTrim"]}, ["operation TFText>RoundRobinTrim"]),
        ({"operations": ["MatMul", "EagerPyFunc"]}, ["operation EagerPyFunc"]),
        ({"device_specific": ["x is placed on /GPU:0"]}, ["x is placed on /GPU:0"]),
        ({"forbidden_imports": ["tfnmt"]}, ["the clean process has imported tfnmt"]),
    ],
)
def test_unsupported_lists_what_tensorflow_serving_cannot_run(
    change: dict[str, Any], problems: list[str]
) -> None:
    assert _unsupported({**ANSWER, **change}) == problems


def test_answer_calls_finds_device_placement_and_xla(tmp_path: Path) -> None:
    module = tf.Module()
    module.weight = tf.Variable(1.0)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="text")])
    def placed(text: Any) -> Any:
        with tf.device("/GPU:0"):
            return {"twice": 2 * text + module.weight}

    compiled = tf.function(
        lambda text: {"twice": 2 * text + module.weight},
        input_signature=[tf.TensorSpec([None], tf.float32, name="text")],
        jit_compile=True,
    )
    module.graphs = {"placed": placed, "compiled": compiled}
    tf.saved_model.save(module, str(tmp_path / "1"), signatures=module.graphs)
    calls = [("placed", {"text": np.ones(2, "f4")})]
    with clean_process(answer_calls.__file__) as run_script:
        found = _run_calls(tmp_path / "1", calls, run_script)["device_specific"]
    assert any("is placed on" in line for line in found)
    assert any("is compiled with XLA" in line for line in found)


def script(folder: Path, *lines: str) -> str:
    path = folder / "script.py"
    path.write_text("\n".join(["import json, sys", *lines]))
    return str(path)


def test_clean_process_returns_the_output(tmp_path: Path) -> None:
    reversing = script(tmp_path, "print(*reversed(json.load(sys.stdin)))")
    with clean_process(reversing) as run_script:
        assert run_script("no answer", "a b", Path("c"), 1) == "1 c a b\n"


def test_clean_process_raises_the_last_line_of_stderr(tmp_path: Path) -> None:
    failing = script(tmp_path, "sys.exit('first\\n' + json.load(sys.stdin)[0] + ' is missing')")
    error = pytest.raises(UserError, match=r"^no answer: x is missing$")
    with clean_process(failing) as run_script, error:
        run_script("no answer", "x")


def test_clean_process_reports_a_script_that_fails_before_it_reads(tmp_path: Path) -> None:
    error = pytest.raises(UserError, match=r"no answer: ModuleNotFoundError.*nothing_of_this_name")
    failing = script(tmp_path, "import nothing_of_this_name")
    with clean_process(failing) as run_script, error:
        run_script("no answer", "x" * 1_000_000)


def test_clean_process_ends_if_it_gets_no_arguments(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    waiting = script(
        tmp_path,
        "import os",
        f"open({str(fifo)!r}, 'w').write(str(os.getpid()))",
        "sys.stdin.read()",
    )
    with clean_process(waiting):
        process = int(fifo.read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def tokenizer(run: Path) -> Tokenizer:
    return Tokenizer(Run(run).tokenizer_model())


def test_parity_texts_begin_with_the_validation_set(tiny_run: Path, tmp_path: Path) -> None:
    texts = parity_texts(Run(tiny_run).config(), tokenizer(tiny_run), tmp_path)
    assert len(texts) == TEXT_COUNT + len(HARD_TEXTS)
    assert texts[-len(HARD_TEXTS) :] == list(HARD_TEXTS)
    assert all(text.endswith((".", "?", "!")) for text in texts[:TEXT_COUNT])


@pytest.mark.parametrize("preset", ["multi30k", "wmt14"])
def test_parity_texts_are_random_but_reproducible_without_a_validation_set(
    tiny_run: Path, tmp_path: Path, preset: str
) -> None:
    config = build_config(read_tree(preset_path(preset)))
    run_tokenizer = tokenizer(tiny_run)
    texts = parity_texts(config, run_tokenizer, tmp_path)
    assert texts == parity_texts(config, run_tokenizer, tmp_path)
    assert len(texts) == TEXT_COUNT + len(HARD_TEXTS)
    assert len(set(texts)) > TEXT_COUNT
    assert texts[-len(HARD_TEXTS) :] == list(HARD_TEXTS)
    lengths = list(map(len, run_tokenizer.encode(texts[:TEXT_COUNT])))
    assert min(lengths) < 5
    assert max(lengths) > 40
