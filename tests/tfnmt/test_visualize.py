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


@pytest.mark.parametrize("plot", ["positions", "schedule"])
def test_positions_and_schedule_are_plotted_with_and_without_a_run(
    call: Call, tiny_run: Path, tmp_path: Path, plot: str
) -> None:
    plots = {}
    for name, flags in {
        "default": [],
        "run": [f"--model={tiny_run}"],
        "preset": ["--dataset=multi30k"],
    }.items():
        output = tmp_path / f"{name}.png"
        call(visualize, plot, *flags, f"--output={output}")
        assert imread(output).ndim == 3
        plots[name] = output.read_bytes()
    assert len(set(plots.values())) == 3


def test_attention_of_every_kind_is_plotted_for_all_heads_and_one_head(
    call: Call, tiny_run: Path, tmp_path: Path
) -> None:
    flags = [f"--model={tiny_run}", "--target=Diese Frau packt endlich ein Buch ein.", TEXT]
    for kind in ("encoder", "decoder", "cross"):
        for head in ([], ["--head=2"]):
            output = tmp_path / f"{kind}{len(head)}.svg"
            call(visualize, "attention", f"--kind={kind}", *head, f"--output={output}", *flags)
            assert ElementTree.parse(output).getroot().tag.endswith("svg")
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 6


def test_attention_without_target_uses_the_models_translation(
    call: Call, tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    default, given = tmp_path / "default.png", tmp_path / "given.png"
    call(visualize, "attention", f"--model={tiny_run}", f"--output={default}", TEXT)
    errors = capsys.readouterr().err
    translation = errors.split("the model's translation: ")[1].splitlines()[0]
    flags = [f"--model={tiny_run}", f"--output={given}", f"--target={translation}"]
    call(visualize, "attention", *flags, TEXT)
    assert default.read_bytes() == given.read_bytes()
    assert "the model's translation" not in capsys.readouterr().err


def test_curves_of_one_run_differ_from_those_of_two(
    call: Call, tiny_run: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    with tf.summary.create_file_writer(str(run / "logs")).as_default():
        for step in (50, 100):
            tf.summary.scalar("train/loss", 5.0, step)
    one, two = tmp_path / "one.png", tmp_path / "two.png"
    call(visualize, "curves", f"--model={run}", f"--output={one}")
    call(visualize, "curves", f"--model={run}", f"--model={run}", f"--output={two}")
    assert one.read_bytes() != two.read_bytes()


def test_schedule_has_two_runs_of_the_same_name(
    call: Call, tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for twin in (Path("a", "run"), Path("b", "run")):
        twin.mkdir(parents=True)
        shutil.copy(tiny_run / "config.yaml", twin)
    call(visualize, "schedule", "--model=a/run", "--output=one.svg")
    call(visualize, "schedule", "--model=a/run", "--model=b/run", "--output=both.svg")
    assert Path("one.svg").stat().st_size < Path("both.svg").stat().st_size


def test_batches_of_a_run_use_its_own_tokenizer(call: Call, tiny_run: Path, tmp_path: Path) -> None:
    """They do so even if the run that `tokenizer.from_run` names no longer exists."""
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    config = (run / "config.yaml").read_text()
    assert "from_run: null" in config
    config = config.replace("from_run: null", f"from_run: {tmp_path / 'gone'}")
    (run / "config.yaml").write_text(config)
    output = tmp_path / "batches.png"
    flags = [f"--model={run}", f"--cache_dir={tmp_path / 'cache'}", f"--output={output}"]
    call(visualize, "batches", *flags)
    assert imread(output).ndim == 3


def test_batches_of_a_run_are_plotted(call: Call, tiny_run: Path, tmp_path: Path) -> None:
    output = tmp_path / "batches.png"
    cache_dir = tiny_run.parent / "cache"
    flags = [f"--model={tiny_run}", f"--cache_dir={cache_dir}", f"--output={output}"]
    call(visualize, "batches", *flags)
    assert imread(output).ndim == 3


def test_default_file_name_is_that_of_the_plot(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    call(visualize, "schedule")
    assert [path.name for path in tmp_path.iterdir()] == ["schedule.png"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "PLOT: missing; choose one of positions, schedule, attention, curves, batches"),
        (["atention"], "atention: not a plot; did you mean attention?"),
        (["positions", "text"], "text: unexpected argument; only attention"),
        (["positions", "--head=1"], "--head: only for attention"),
        (["positions", "--output=a.jpg"], "--output=a.jpg: not a .png or .svg file"),
        (["positions", "--data_dir=a"], "--data_dir: not used for positions"),
        (["curves", "--model=a", "--mirror=a"], "--mirror: not used for curves"),
        (["positions", "--set=model.d_model=8"], "--set: only with --dataset"),
        (["positions", "--model=a", "--model=b"], "--model: positions takes only one run"),
        (["batches", "--model=a", "--dataset=toy"], "--model, --dataset: give only one"),
        (["batches"], "--model: missing; batches"),
        (["curves"], "--model: missing; curves"),
        (["curves", "--dataset=toy"], "--dataset: not supported for curves; give a run"),
        (["attention", "--model=a"], "attention: needs exactly one text"),
        (["attention", "--model=a", "two", "texts"], "attention: needs exactly one text"),
        (["attention", "--model=a", " "], "attention: needs exactly one text"),
        (["attention", "--model=a", "caf\udce9"], r"'caf\udce9': not UTF-8"),
        (["attention", "--model=a", "a", "--target=caf\udce9"], r"'caf\udce9': not UTF-8"),
        (["attention", "text"], "--model: missing; attention"),
        (["batches", "--dataset=tpy"], "did you mean toy?"),
        (["batches", "--dataset=toy", "--set=data.batch_tokens=auto"], "data.batch_tokens=auto:"),
    ],
)
def test_wrong_arguments_are_rejected(call: Call, arguments: list[str], problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        call(visualize, *arguments)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("flag", "problem"),
    [
        ("--layer=2", r"--layer=2: larger than the number of decoder layers \(1\)"),
        ("--head=3", r"--head=3: larger than the number of heads \(2\)"),
    ],
)
def test_layer_or_head_out_of_range_is_rejected(
    call: Call, tiny_run: Path, flag: str, problem: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        call(visualize, "attention", f"--model={tiny_run}", flag, TEXT)


def test_missing_run_is_rejected(call: Call) -> None:
    for plot in ("positions", "curves", "batches"):
        with pytest.raises(UserError, match="nowhere: "):
            call(visualize, plot, "--model=nowhere")
