"""The train command: starting, resuming and refusing runs. tests/tfnmt/training tests training."""

import copy
import json
import shutil
import signal
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from tests.conftest import TINY, TWO_WAY, settings
from tfnmt import train
from tfnmt.config import Config
from tfnmt.data.corpora.toy import grammar
from tfnmt.data.preparation.tokenizer import Tokenizer
from tfnmt.errors import UsageError, UserError
from tfnmt.experiment import resolve_config
from tfnmt.model.transformer import Transformer
from tfnmt.runs.checkpoints import CHECKSUMS, WEIGHTS, format_checksums
from tfnmt.runs.run import Run
from tfnmt.training.checkpoints import STATE

Train = Callable[..., Run]


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def train_toy(call: Callable[..., None], tmp_path: Path, cache_dir: Path) -> Train:
    """Train the tiny model on the toy corpus, with some keys changed."""

    def run(**changes: Any) -> Run:
        values = TINY | {key.replace("__", "."): value for key, value in changes.items()}
        call(
            train,
            "--dataset=toy",
            f"--run_dir={tmp_path / 'run'}",
            f"--cache_dir={cache_dir}",
            *settings(values),
        )
        return Run(tmp_path / "run")

    return run


@pytest.fixture
def copied_run(tiny_run: Path, tmp_path: Path) -> Run:
    """A copy of the tiny run, which `train_toy` resumes."""
    shutil.copytree(tiny_run, tmp_path / "run")
    return Run(tmp_path / "run")


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Replace training: `no_training(returns=SIGNAL, checkpoint=True)`."""

    def replace(returns: int | None, checkpoint: bool) -> None:
        def fake_train(training: Any) -> int | None:
            if checkpoint:
                training.run.checkpoints().write(1, lambda path: (path / WEIGHTS).write_bytes(b""))
            return returns

        monkeypatch.setattr("tfnmt.training.loop.train", fake_train)

    return replace


# --- Resuming -------------------------------------------------------------------------------------


def test_finished_run_reports_how_to_continue(
    copied_run: Run, train_toy: Train, capsys: pytest.CaptureFixture[str]
) -> None:
    before = copied_run.weights().read_bytes()
    train_toy()
    err = capsys.readouterr().err
    assert f"tfnmt: {copied_run.path}: training has finished; raise " in err
    assert "training.max_steps" in err
    assert copied_run.weights().read_bytes() == before


def test_run_is_not_resumed_with_a_different_model(copied_run: Run, train_toy: Train) -> None:
    with pytest.raises(UserError, match=rf"{copied_run.path}: model\.d_ff=16: .* with 32; "):
        train_toy(model__d_ff=16)
    assert copied_run.finished


def test_intervals_may_change_when_a_run_is_resumed(copied_run: Run, train_toy: Train) -> None:
    changes = {"training__checkpoint_steps": 7, "training__validation_steps": 14}
    run = train_toy(training__max_steps=14, **changes)
    assert [path.name for path in run.checkpoints().all()][-1] == "00000014"
    assert json.loads((run.path / "validations.jsonl").read_text().splitlines()[-1])["step"] == 14


@pytest.mark.parametrize(
    ("changes", "settings"),
    [
        ({"training__max_steps": 5}, "training.max_steps=5 has"),
        ({"training__max_epochs": 1, "training__max_steps": 12}, "training.max_steps=12 has"),
    ],
)
def test_end_that_has_passed_is_named(
    copied_run: Run,
    train_toy: Train,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, int],
    settings: str,
) -> None:
    copied_run.summary_path.unlink()
    train_toy(**changes)
    errors = capsys.readouterr().err
    assert f"{copied_run.path}: {settings} already been reached at step 12; " in errors
    assert "resuming" not in errors
    assert copied_run.finished


def test_average_below_the_best_checkpoint_is_reported(
    copied_run: Run, train_toy: Train, capsys: pytest.CaptureFixture[str]
) -> None:
    newest = copied_run.checkpoints().all()[-1]
    files = {file.name: file.read_bytes() for file in newest.iterdir() if file.name != CHECKSUMS}
    state = json.loads(files[STATE]) | {"best_bleu": 99.5}
    files[STATE] = json.dumps(state).encode()
    (newest / STATE).write_bytes(files[STATE])
    (newest / CHECKSUMS).write_bytes(format_checksums(files))
    copied_run.summary_path.unlink()
    train_toy()
    assert "tfnmt: this is below the best checkpoint (99.50); " in capsys.readouterr().err


def test_run_that_lost_its_checkpoints_is_not_started_again(
    copied_run: Run, train_toy: Train
) -> None:
    shutil.rmtree(copied_run.path / "checkpoints")
    before = copied_run.weights().read_bytes()
    train_toy()  # has finished
    with pytest.raises(UserError, match=rf"^{copied_run.path}: cannot be resumed"):
        train_toy(training__max_steps=13)
    assert copied_run.weights().read_bytes() == before
    assert copied_run.finished


def test_run_is_not_resumed_with_another_tokenizer(copied_run: Run, train_toy: Train) -> None:
    content = bytearray(copied_run.tokenizer_model())
    content[-1] ^= 1
    copied_run.tokenizer_path.write_bytes(content)
    with pytest.raises(UserError, match=rf"^{copied_run.tokenizer_path}: damaged"):
        train_toy(training__max_steps=13)


def test_run_can_be_resumed_with_gradient_accumulation(copied_run: Run, train_toy: Train) -> None:
    """The error of a training run that ran out of memory recommends it."""
    train_toy(training__max_steps=13, training__device_tokens=128)
    assert json.loads(copied_run.summary_path.read_text())["step"] == 13
    assert copied_run.config().training.device_tokens == 128


def test_run_without_a_checkpoint_is_started_again_with_other_keys(
    train_toy: Train, no_training: Callable[..., None]
) -> None:
    no_training(returns=None, checkpoint=False)
    assert train_toy(data__batch_tokens=256).config().data.padded_tokens == 256
    assert train_toy(data__batch_tokens=128).config().data.padded_tokens == 128


def test_stopped_training_exits_with_the_signal_and_reports_the_command(
    train_toy: Train,
    no_training: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["tfnmt.train", "--dataset=toy", "--run_dir=a b"])
    no_training(returns=signal.SIGTERM, checkpoint=True)
    with pytest.raises(SystemExit) as caught:
        train_toy()
    assert caught.value.code == 128 + signal.SIGTERM
    assert "python -m tfnmt.train --dataset=toy '--run_dir=a b'\n" in capsys.readouterr().err


def test_run_is_not_resumed_with_changed_training_data(
    call: Callable[..., None], tmp_path: Path, no_training: Callable[..., None]
) -> None:
    no_training(returns=None, checkpoint=True)
    for name, word in (("en", "sun"), ("de", "Sonne")):
        text = "".join(f"{word} {number}\n" for number in range(200))
        (tmp_path / f"my.{name}").write_text(text)
    arguments = [
        "--dataset=toy",
        f"--train={tmp_path / 'my.en'},{tmp_path / 'my.de'}",
        f"--run_dir={tmp_path / 'run'}",
        f"--cache_dir={tmp_path / 'cache'}",
        *settings(TINY),
    ]
    call(train, *arguments)
    call(train, *arguments, "--set=training.max_steps=13")
    with (tmp_path / "my.en").open("a") as en, (tmp_path / "my.de").open("a") as de:
        en.write("moon\n")
        de.write("Mond\n")
    with pytest.raises(UserError, match=rf"{tmp_path / 'run'}: .* has changed "):
        call(train, *arguments, "--set=training.max_steps=14")


# --- Before training ------------------------------------------------------------------------------


def test_run_dir_is_checked_before_the_data_is_read(
    call: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file/run: .*/file"):
        call(train, "--dataset=toy", f"--run_dir={tmp_path / 'file' / 'run'}")
    assert "tokenizer" not in capsys.readouterr().err


@pytest.mark.parametrize("name", ["notes.txt", "config.yaml"])
def test_run_dir_with_other_files_is_refused_before_the_data_is_read(
    call: Callable[..., None], tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(UserError, match=rf"^--run_dir={tmp_path}: contains {name} "):
        call(train, "--dataset=toy", f"--run_dir={tmp_path}")
    assert (tmp_path / name).read_text() == "mine"


def test_file_in_place_of_the_logs_is_a_user_error(copied_run: Run, train_toy: Train) -> None:
    shutil.rmtree(copied_run.logs)
    copied_run.logs.write_text("mine")
    with pytest.raises(UserError, match=rf"^{copied_run.logs}: "):
        train_toy(training__max_steps=13)


def test_run_dir_that_is_too_long_is_a_user_error(
    call: Callable[..., None], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="File name too long"):
        call(train, "--dataset=toy", f"--run_dir={tmp_path / ('x' * 300)}")


def test_default_run_dir_has_the_name_of_a_link_to_the_data(tmp_path: Path) -> None:
    for language in ("en", "de"):
        (tmp_path / f"my.{language}").symlink_to(tmp_path / f"blob-{language}")
    values = copy.deepcopy(train.FLAGS)
    values(["train", f"--train={tmp_path / 'my.en'},{tmp_path / 'my.de'}"])
    run_dir = train.default_run_dir(values, resolve_config(values))
    assert run_dir.name == "my-en-de"


def test_run_dir_must_be_utf_8(call: Callable[..., None]) -> None:
    with pytest.raises(UsageError, match=r"--run_dir: 'gr\\udcfcn': not UTF-8"):
        call(train, "--dataset=toy", "--run_dir=gr\udcfcn")


def test_validation_pairs_with_an_empty_side_are_reported(
    call: Callable[..., None],
    tmp_path: Path,
    no_training: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    no_training(returns=None, checkpoint=True)
    rows = "".join(f"sun {row}\tSonne {row}\n" for row in range(200))
    (tmp_path / "my.tsv").write_text(f"en\tde\n{rows}")
    (tmp_path / "val.tsv").write_text("en\tde\nsun\tSonne\nmoon\t\n")
    call(
        train,
        "--dataset=toy",
        f"--train={tmp_path / 'my.tsv'}",
        f"--val={tmp_path / 'val.tsv'}",
        f"--run_dir={tmp_path / 'run'}",
        f"--cache_dir={tmp_path / 'cache'}",
        *settings(TINY),
    )
    assert "tfnmt: validation set: 1 of 2 pairs have an empty side" in capsys.readouterr().err


# --- Automatic batch size -------------------------------------------------------------------------


@pytest.mark.slow
def test_measured_batch_size_is_kept_when_the_run_is_resumed(
    train_toy: Train, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tfnmt.training.batch_size.MAX_PADDED_TOKENS", 2048)  # a fast step
    run = train_toy(data__batch_tokens="auto", training__max_steps=1)
    batch_tokens = run.config().data.batch_tokens
    assert f"data.batch_tokens={batch_tokens}\n" in capsys.readouterr().err
    train_toy(data__batch_tokens="auto", training__max_steps=2)
    assert "measuring" not in capsys.readouterr().err
    assert run.config().data.batch_tokens == batch_tokens


def test_automatic_batch_size_is_refused_for_several_hosts(
    train_toy: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(hosts))
    for key in ("data.batch_tokens", "training.precision"):
        with pytest.raises(UsageError, match=rf"{key}=auto: "):
            train_toy(**{key.replace(".", "__"): "auto"})


def test_automatic_precision_is_kept_when_the_run_is_resumed(
    train_toy: Train, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(train, "automatic_precision", lambda: ("mixed_bfloat16", "of a test"))
    try:
        run = train_toy(training__precision="auto", training__max_steps=1)
        assert run.config().training.precision == "mixed_bfloat16"
        assert "training.precision=mixed_bfloat16: of a test\n" in capsys.readouterr().err
        monkeypatch.setattr(train, "automatic_precision", lambda: ("float32", "of a test"))
        train_toy(training__precision="auto", training__max_steps=2)
        assert run.config().training.precision == "mixed_bfloat16"
    finally:
        keras.config.set_dtype_policy("float32")


def test_validation_loss_of_equal_logits_is_that_of_guessing(tiny_run: Path) -> None:
    run = Run(tiny_run)
    tokenizer_model, config = run.tokenizer_model(), run.config()
    vocab_size = Tokenizer(tokenizer_model).vocab_size
    transformer = Transformer(config.model, vocab_size)
    for weight in transformer.weights:
        weight.assign(np.zeros(weight.shape))
    pairs = [("the dog", "der Hund"), ("a cat", "eine Katze sieht")]
    validation = train._make_evaluate(transformer, config, tokenizer_model, {"en-de": pairs})()
    np.testing.assert_allclose(validation.loss, np.log(vocab_size - 2), rtol=1e-5)  # PAD and BOS


# --- Several directions ---------------------------------------------------------------------------


def test_default_run_dir_is_the_same_for_compressed_files() -> None:
    values = copy.deepcopy(train.FLAGS)
    values(["train", "--train=my.en.gz,my.de.gz"])
    assert train.default_run_dir(values, resolve_config(values)).name == "my-en-de"


def test_default_run_dir_names_the_languages_of_several_directions() -> None:
    values = copy.deepcopy(train.FLAGS)
    values(["train", "--dataset=tatoeba", "--directions=en-de,de-en,en-fr"])
    assert train.default_run_dir(values, resolve_config(values)).name == "tatoeba-en+de+fr"


def test_run_of_several_directions_records_each(two_way_run: Path) -> None:
    run = Run(two_way_run)
    assert list(Tokenizer(run.tokenizer_model()).language_tokens) == ["de", "en"]
    (line,) = (two_way_run / "validations.jsonl").read_text().splitlines()
    summary = json.loads(run.summary_path.read_text())
    for scores in (json.loads(line)["directions"], summary["averaged_bleu_of_directions"]):
        assert list(scores) == ["en-de", "de-en"]
    assert run.config().data.all_directions == ("en-de", "de-en")


def test_resumed_run_of_several_directions_equals_an_uninterrupted_one(
    call: Callable[..., None], two_way_run: Path, tmp_path: Path
) -> None:
    folders = (f"--run_dir={tmp_path / 'run'}", f"--cache_dir={two_way_run.parent / 'cache'}")
    for steps in (5, 12):
        changes = settings(TWO_WAY | {"training.max_steps": steps})
        call(train, "--dataset=toy", "--directions=en-de,de-en", *folders, *changes)
    last = [Run(path).checkpoints().newest() for path in (two_way_run, tmp_path / "run")]
    checksums = [json.loads((path / CHECKSUMS).read_text())[WEIGHTS] for path in last if path]
    assert checksums[0] == checksums[1]


# --- Your own data, without a preset --------------------------------------------------------------


@pytest.fixture
def own_data(tmp_path: Path) -> list[str]:
    """The flags of a training run on 300 pairs."""
    sides = zip(*islice(grammar.pairs("train"), 300), strict=True)
    for language, lines in zip(("en", "de"), sides, strict=True):
        (tmp_path / f"my.{language}").write_text("".join(f"{line}\n" for line in lines))
    return [
        f"--train={tmp_path / 'my.en'},{tmp_path / 'my.de'}",
        f"--run_dir={tmp_path / 'run'}",
        f"--cache_dir={tmp_path / 'cache'}",
    ]


SHORT = {
    "model.num_encoder_layers": 1,
    "model.num_decoder_layers": 1,
    "training.validation_steps": 5,
    "decoding.beam_size": 1,
    "decoding.max_extra_length": 2,
}


def test_sizes_are_chosen_once_for_a_run_of_two_directions(
    call: Callable[..., None],
    own_data: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = [*own_data, "--directions=en-de,de-en", "--minutes=60", *settings(SHORT)]
    # A run without a checkpoint starts again, with the sizes for its present text and time.
    Run(tmp_path / "run").create(Config(), b"a tokenizer", "prepared")
    call(train, *arguments, "--set=training.max_steps=5")
    err = capsys.readouterr().err
    assert "tfnmt: measuring the speed of training on this machine\n" in err
    assert "tfnmt: size tiny: 1+1 layers, d_model 64, " in err
    run = Run(tmp_path / "run")
    config = run.config()
    assert (config.model.d_model, config.training.max_minutes) == (64, 60)
    assert config.training.warmup_steps == 1
    monkeypatch.setattr("tfnmt.training.sizing.choose", None)  # would fail
    call(train, *arguments, "--set=training.max_steps=7")
    assert (
        f"tfnmt: {run.path}: exists; its config.yaml gives all sizes\n" in capsys.readouterr().err
    )
    assert json.loads(run.summary_path.read_text())["step"] == 7
    limit = config.training.model_copy(update={"max_steps": 7})
    assert run.config() == config.model_copy(update={"training": limit})


def test_setting_that_contradicts_the_sizes_of_a_run_is_refused(
    call: Callable[..., None], own_data: list[str], no_training: Callable[..., None]
) -> None:
    no_training(returns=None, checkpoint=True)
    call(train, *own_data)
    with pytest.raises(UserError, match=r"model\.d_model=32: the run was started with 64;"):
        call(train, *own_data, "--set=model.d_model=32")


def test_new_run_has_the_model_of_the_run_that_initializes_it(
    call: Callable[..., None],
    own_data: list[str],
    no_training: Callable[..., None],
    tiny_run: Path,
    tmp_path: Path,
) -> None:
    no_training(returns=None, checkpoint=True)
    call(train, *own_data, f"--set=training.init_from={tiny_run}")
    ours, theirs = Run(tmp_path / "run").config(), Run(tiny_run).config()
    assert ours.model == theirs.model
    assert ours.tokenizer == theirs.tokenizer


def test_sizes_by_time_are_refused_for_several_hosts(
    call: Callable[..., None], own_data: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(hosts))
    with pytest.raises(UsageError, match=r"^training\.max_minutes: .* single host; "):
        call(train, *own_data, "--minutes=10")
