"""A model of several directions in every command, and its exports."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import tensorflow as tf
from matplotlib.image import imread

from tests.conftest import settings
from tfnmt import score, trace, train, translate, visualize
from tfnmt.errors import UserError
from tfnmt.litert.model import LiteRTModel
from tfnmt.runs.run import Run

Call = Callable[..., None]

TEXTS = [b"The dog sleeps.", b"", b"Der Hund"]
TARGETS = [b"de", b"en", b"en"]


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.tsv"
    path.write_text("The dog sleeps.\tDer Hund\n")
    return path


def test_score_depends_on_the_direction(
    call: Call, two_way_run: Path, pairs: Path, tmp_path: Path
) -> None:
    for direction in "en-de", "de-en":
        output = f"--output={tmp_path / direction}"
        flags = (f"--direction={direction}", f"--input={pairs}", output)
        call(score, f"--model={two_way_run}", *flags)
    assert (tmp_path / "en-de").read_text() != (tmp_path / "de-en").read_text()


@pytest.mark.parametrize("command", [score, trace, visualize])
def test_commands_list_the_directions_if_none_is_given(
    call: Call, two_way_run: Path, pairs: Path, command: ModuleType
) -> None:
    arguments = {score: [f"--input={pairs}"], trace: ["a"], visualize: ["attention", "a"]}
    with pytest.raises(UserError, match=r"--direction: missing; .* en-de, de-en"):
        call(command, f"--model={two_way_run}", *arguments[command])


def test_trace_and_plot_begin_with_the_language_token(
    call: Call, two_way_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = (f"--model={two_way_run}", "--direction=de-en", "Der Hund")
    call(trace, *flags, "--target=the dog")
    assert "<2en>" in capsys.readouterr().out
    call(visualize, "attention", *flags, f"--output={tmp_path / 'a.png'}")
    assert imread(tmp_path / "a.png").ndim == 3


def test_one_direction_is_trained_from_a_run_of_both_and_needs_no_target(
    call: Call, two_way_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bidirectional pretraining. The run keeps the tokenizer, and so the language token."""
    run = Run(tmp_path / "run")
    flags = (f"--run_dir={run.path}", f"--cache_dir={tmp_path / 'cache'}")
    changes = {"training.init_from": two_way_run, "training.max_steps": 2}
    config = f"--config={two_way_run / 'config.yaml'}"
    call(train, config, "--source=de", "--target=en", *flags, *settings(changes))
    assert "initialized with averaged/" in capsys.readouterr().err
    assert run.config().data.all_directions == ("de-en",)
    assert run.tokenizer_model() == Run(two_way_run).tokenizer_model()
    call(translate, f"--model={run.path}", "Der Hund schläft.")
    without_target = capsys.readouterr().out
    call(translate, f"--model={run.path}", "--target=en", "Der Hund schläft.")
    assert capsys.readouterr().out == without_target


@pytest.mark.slow
def test_saved_model_takes_the_target_language(two_way_export: Path) -> None:
    import tensorflow_text  # noqa: F401  registers its operations

    loaded = tf.saved_model.load(str(two_way_export / "1"))
    call_graph = loaded.signatures["serving_default"]
    found = call_graph(text=tf.constant(TEXTS), target=tf.constant(TARGETS))
    assert found["translation"].numpy()[1] == b""
    with pytest.raises(tf.errors.InvalidArgumentError, match="de, en"):
        call_graph(text=tf.constant([b"a"]), target=tf.constant([b"fr"]))
    card = json.loads((two_way_export / "1" / "assets.extra" / "model_card.json").read_text())
    assert card["targets"] == ["de", "en"]
    assert card["directions"] == ["en-de", "de-en"]


@pytest.mark.slow
def test_litert_export_has_the_translations_of_the_run(
    call: Call, two_way_run: Path, two_way_litert: Path, tmp_path: Path
) -> None:
    (tmp_path / "in").write_text("The dog sleeps.\n\n")
    for target in "de", "en":
        for model, name in (two_way_run, "run"), (two_way_litert, "litert"):
            flags = (f"--target={target}", f"--input={tmp_path / 'in'}")
            call(translate, f"--model={model}", *flags, f"--output={tmp_path / name}")
        assert (tmp_path / "run").read_bytes() == (tmp_path / "litert").read_bytes()
    model = LiteRTModel(two_way_litert, 1)
    for name in "serving_default", "greedy", "nbest", "tokenize":
        with pytest.raises(UserError, match=r"target: .* de, en"):
            model.signatures[name](text=[b"a"])
    with pytest.raises(UserError, match=r"target=fr: .* de, en"):
        model.signatures["serving_default"](text=[b"a"], target=[b"fr"])
