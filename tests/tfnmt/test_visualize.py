import shutil
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
import tensorflow as tf
from matplotlib.image import imread

from tfnmt import visualize
from tfnmt.errors import UsageError, UserError

Call = Callable[..., None]
TEXT = "This woman finally packs a book."


@pytest.mark.parametrize("what", ["positions", "schedule"])
def test_what_needs_no_run_is_drawn_without_one_and_with_one(
    call: Call, tiny_run: Path, tmp_path: Path, what: str
) -> None:
    pictures = {}
    for name, flags in {
        "alone": [], "run": [f"--model={tiny_run}"], "preset": ["--dataset=multi30k"],
    }.items():  # fmt: skip
        output = tmp_path / f"{name}.png"
        call(visualize, what, *flags, f"--output={output}")
        assert imread(output).ndim == 3
        pictures[name] = output.read_bytes()
    assert len(set(pictures.values())) == 3


def test_attention_of_every_kind_and_of_a_single_head(
    call: Call, tiny_run: Path, tmp_path: Path
) -> None:
    flags = [f"--model={tiny_run}", "--target=Diese Frau packt endlich ein Buch ein.", TEXT]
    for kind in ("encoder", "decoder", "cross"):
        for head in ([], ["--head=2"]):
            output = tmp_path / f"{kind}{len(head)}.svg"
            call(visualize, "attention", f"--kind={kind}", *head, f"--output={output}", *flags)
            assert ElementTree.parse(output).getroot().tag.endswith("svg")
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 6


def test_without_a_target_the_models_own_translation_is_read(
    call: Call, tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, given = tmp_path / "own.png", tmp_path / "given.png"
    call(visualize, "attention", f"--model={tiny_run}", f"--output={own}", TEXT)
    errors = capsys.readouterr().err
    translation = errors.split("the model's translation: ")[1].splitlines()[0]
    call(visualize, "attention", f"--model={tiny_run}", f"--output={given}",
         f"--target={translation}", TEXT)  # fmt: skip
    assert own.read_bytes() == given.read_bytes()
    assert "the model's translation" not in capsys.readouterr().err


def test_curves_of_one_run_and_of_several(call: Call, tiny_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    with tf.summary.create_file_writer(str(run / "logs")).as_default():
        for step in (50, 100):
            tf.summary.scalar("train/loss", 5.0, step)
    one, two = tmp_path / "one.png", tmp_path / "two.png"
    call(visualize, "curves", f"--model={run}", f"--output={one}")
    call(visualize, "curves", f"--model={run}", f"--model={run}", f"--output={two}")
    assert one.read_bytes() != two.read_bytes()


def test_runs_of_the_same_name_are_both_in_the_schedule(
    call: Call, tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for twin in (Path("a", "run"), Path("b", "run")):
        twin.mkdir(parents=True)
        shutil.copy(tiny_run / "config.yaml", twin)
    call(visualize, "schedule", "--model=a/run", "--output=one.svg")
    call(visualize, "schedule", "--model=a/run", "--model=b/run", "--output=both.svg")
    assert Path("one.svg").stat().st_size < Path("both.svg").stat().st_size


def test_batches_of_a_run_are_those_of_its_own_tokenizer(
    call: Call, tiny_run: Path, tmp_path: Path
) -> None:
    """Also where the run that it was taken from has gone."""
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    config = (run / "config.yaml").read_text()
    assert "from_run: null" in config
    config = config.replace("from_run: null", f"from_run: {tmp_path / 'gone'}")
    (run / "config.yaml").write_text(config)
    output = tmp_path / "batches.png"
    call(visualize, "batches", f"--model={run}", f"--cache_dir={tmp_path / 'cache'}",
         f"--output={output}")  # fmt: skip
    assert imread(output).ndim == 3


def test_batches_of_a_run(call: Call, tiny_run: Path, tmp_path: Path) -> None:
    output = tmp_path / "batches.png"
    call(visualize, "batches", f"--model={tiny_run}", f"--cache_dir={tiny_run.parent / 'cache'}",
         f"--output={output}")  # fmt: skip
    assert imread(output).ndim == 3


def test_the_picture_is_named_by_what_it_shows(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    call(visualize, "schedule")
    assert [path.name for path in tmp_path.iterdir()] == ["schedule.png"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "PICTURE: name one of positions, schedule, attention, curves, batches"),
        (["atention"], "did you mean attention?"),
        (["positions", "text"], "text: not expected; only attention takes a text"),
        (["positions", "--head=1"], "--head: goes with attention"),
        (["positions", "--output=a.jpg"], "--output=a.jpg: neither .png nor .svg"),
        (["positions", "--set=model.d_model=8"], "--set: goes with --dataset"),
        (["positions", "--model=a", "--model=b"], "--model: positions is of one run"),
        (["batches", "--model=a", "--dataset=toy"], "--model and --dataset: give one of them"),
        (["batches"], "--model: missing; batches is of a run"),
        (["curves"], "--model: missing; curves is of a run"),
        (["curves", "--dataset=toy"], "--dataset: curves is of a run; give --model"),
        (["attention", "--model=a"], "attention: give one text, in quotes"),
        (["attention", "--model=a", "two", "texts"], "attention: give one text, in quotes"),
        (["attention", "--model=a", " "], "attention: give one text, in quotes"),
        (["attention", "--model=a", "caf\udce9"], r"'caf\udce9': not UTF-8"),
        (["attention", "--model=a", "a", "--target=caf\udce9"], r"'caf\udce9': not UTF-8"),
        (["attention", "text"], "--model: missing; attention is of a run"),
        (["batches", "--dataset=tpy"], "did you mean toy?"),
        (["batches", "--dataset=toy", "--set=data.batch_tokens=auto"], "data.batch_tokens: auto"),
    ],
)
def test_what_makes_no_sense_is_refused(call: Call, arguments: list[str], line: str) -> None:
    with pytest.raises(UsageError) as caught:
        call(visualize, *arguments)
    assert line in str(caught.value)


@pytest.mark.parametrize(
    ("flag", "line"),
    [("--layer=2", "--layer=2: the model has 1"), ("--head=3", "--head=3: a layer has 2")],
)
def test_a_layer_or_head_that_there_is_not_is_refused(
    call: Call, tiny_run: Path, flag: str, line: str
) -> None:
    with pytest.raises(UsageError, match=line):
        call(visualize, "attention", f"--model={tiny_run}", flag, TEXT)


def test_a_run_that_is_none_is_told(call: Call) -> None:
    for what in ("positions", "curves", "batches"):
        with pytest.raises(UserError, match="nowhere: no run there"):
            call(visualize, what, "--model=nowhere")
