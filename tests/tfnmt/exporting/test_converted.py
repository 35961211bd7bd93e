"""A run that LiteRT translates: the cache of converted runs, and the flags that select it."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tfnmt import evaluate, score, trace, translate
from tfnmt.errors import UsageError, UserError
from tfnmt.exporting.converted import ConvertedRun, select_engine
from tfnmt.litert.files import GRAPHS
from tfnmt.loading.models import find_model, find_run

pytestmark = pytest.mark.slow  # a run is converted

Call = Callable[..., None]

TEXTS = ["She knows that the dog sleeps.", "", "the old king sees a small cat"]

SCRIPT = """
import sys
from pathlib import Path
for name in ("tensorflow", "tensorflow_text", "keras", "keras_nlp"):
    sys.modules[name] = None  # its import fails
from tfnmt import translate
from tfnmt.cli import run_command
from tfnmt.exporting import converted
converted.cache_folder = lambda: Path(sys.argv[1])
run_command(translate.main, translate.FLAGS, "", sys.argv[2:])
"""


@pytest.fixture(scope="module")
def cache(tiny_run: Path, tiny_litert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a cache that contains the converted run."""
    base = tmp_path_factory.mktemp("converted")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tfnmt.exporting.converted.cache_folder", lambda: base)
        model = select_engine(find_model(str(tiny_run), {}), "litert", None)
        assert isinstance(model, ConvertedRun)
        shutil.copytree(tiny_litert, model._folder())
    return base


@pytest.fixture
def cached(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use that cache, and fail if a run is converted."""
    monkeypatch.setattr("tfnmt.exporting.converted.cache_folder", lambda: cache)
    monkeypatch.delattr(ConvertedRun, "_write")


def test_processes_convert_a_run_once(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfnmt.exporting.converted.cache_folder", lambda: tmp_path)
    convert, converted = ConvertedRun._write, []

    def write(model: ConvertedRun, folder: Path) -> None:
        converted.append(folder)
        convert(model, folder)

    monkeypatch.setattr(ConvertedRun, "_write", write)
    changes = {"beam_size": 2, "max_source_length": 8, "min_length": 2}
    model = select_engine(find_run(tiny_run, changes), "litert", "int8")
    with ThreadPoolExecutor(2) as pool:
        loaded = list(pool.map(lambda _: model.load(), range(2)))
    (folder,) = converted
    assert list((tmp_path / "litert").glob("[!.]*")) == [folder]
    text = [each.encode() for each in TEXTS]
    texts = [graphs["serving_default"](text=text)["translation"].tolist() for graphs in loaded]
    assert texts[0] == texts[1]


@pytest.mark.usefixtures("cached")
def test_folder_in_the_cache_depends_on_settings_and_quantization(tiny_run: Path) -> None:
    folders = set()
    for changes in {}, {"beam_size": 2}, {"length_penalty": 0.0}, {"max_extra_length": 3}:
        for quantization in None, "int8":
            model = select_engine(find_run(tiny_run, changes), "litert", quantization)
            assert isinstance(model, ConvertedRun)
            folders.add(model._folder())
    assert len(folders) == 8


@pytest.mark.usefixtures("cached")
def test_commands_give_the_output_of_the_run(
    call: Call, tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [*TEXTS, "  two  spaces. And a sentence. ", "The old king sees a small cat. " * 30]
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in lines))
    for flags in [], ["--json"], ["--nbest=3"], ["--json", "--split_sentences"]:
        found = []
        for engine in "tensorflow", "litert":
            output = tmp_path / engine
            files = f"--input={tmp_path / 'in'}", f"--output={output}"
            call(translate, f"--model={tiny_run}", f"--engine={engine}", *files, *flags)
            assert f"engine: {engine}\n" in capsys.readouterr().err
            found.append(_numbers_rounded(output.read_text().splitlines()))
        assert found[0] == found[1]


def _numbers_rounded(lines: list[str]) -> list[object]:
    """Parse JSON lines. Scores have three decimals, because engines sum in different orders."""
    if not lines[0].startswith("{"):
        return list(lines)
    return [
        json.loads(line, parse_float=lambda number: pytest.approx(float(number), abs=2e-3))
        for line in lines
    ]


@pytest.mark.usefixtures("cached")
@pytest.mark.parametrize("suffix", ["tsv", "jsonl"])
def test_scores_are_those_of_the_run(
    call: Call, tiny_run: Path, tiny_litert: Path, tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"in.{suffix}"
    pairs = [(TEXTS[0], "Der Hund  schläft."), ("", ""), ("word " * 400, "b " * 400)]
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    if suffix == "jsonl":
        (tmp_path / "sources").write_text("".join(f"{text}\n" for text in TEXTS))
        files = f"--input={tmp_path / 'sources'}", f"--output={path}"
        call(translate, f"--model={tiny_run}", "--nbest=2", *files)
    scores = []
    for flags in [[tiny_run], [tiny_run, "--engine=litert"], [tiny_litert]]:
        model, *engine = flags
        output = tmp_path / "out"
        call(score, f"--model={model}", f"--input={path}", f"--output={output}", *engine)
        lines = [line.split("\t") for line in output.read_text().splitlines()]
        scores.append([[float(number) for number in line] for line in lines])
    assert len(scores[0]) >= 3
    for found in scores[1:]:
        assert found == [pytest.approx(line, abs=2e-3) for line in scores[0]]


@pytest.mark.usefixtures("cached")
def test_ids_longer_than_the_graphs_are_a_user_error(
    call: Call, tiny_run: Path, tmp_path: Path
) -> None:
    path = tmp_path / "in.jsonl"
    hypothesis = {"text": "", "tokens": [7] * 1000}
    path.write_text(json.dumps({"source": "a", "translations": [hypothesis]}) + "\n")
    with pytest.raises(UserError, match="1000 target tokens: "):
        call(score, f"--model={tiny_run}", "--engine=litert", f"--input={path}")


@pytest.mark.usefixtures("cached")
def test_evaluation_records_the_engine(call: Call, tiny_run: Path, tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text(f"{TEXTS[0]}\tSie weiß, dass der Hund schläft.\n")
    flags = f"--test={tmp_path / 't.tsv'}", f"--json={tmp_path / 'found'}"
    call(evaluate, f"--model={tiny_run}", "--engine=litert", *flags)
    found = json.loads((tmp_path / "found").read_text())
    assert (found["engine"], found["quantization"]) == ("litert", "float32")


@pytest.mark.usefixtures("cached")
def test_resume_refuses_another_engine(call: Call, tiny_run: Path, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("a\n")
    flags = f"--model={tiny_run}", f"--input={tmp_path / 'in'}", f"--output={tmp_path / 'out'}"
    call(translate, *flags)
    call(translate, *flags, "--resume", "--engine=tensorflow")
    with pytest.raises(UsageError, match="different --engine"):
        call(translate, *flags, "--resume", "--engine=litert")


def test_cached_run_and_export_need_no_tensorflow(
    cache: Path, tiny_run: Path, tiny_litert: Path
) -> None:
    outputs = []
    for flags in [f"--model={tiny_run}", "--engine=litert"], [f"--model={tiny_litert}"]:
        command = [sys.executable, "-c", SCRIPT, cache, *flags, "--json", TEXTS[0]]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "INFO" not in done.stderr
        outputs.append(done.stdout)
    assert outputs[0] == outputs[1]


@pytest.mark.usefixtures("cached")
def test_damaged_file_in_the_cache_is_a_user_error(
    call: Call, cache: Path, tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = shutil.copytree(cache, tmp_path / "base")
    monkeypatch.setattr("tfnmt.exporting.converted.cache_folder", lambda: base)
    (graphs,) = base.glob(f"litert/*/{GRAPHS}")
    graphs.write_bytes(b"damaged")
    with pytest.raises(UserError, match=f"^{graphs.parent}: .*remove this folder"):
        call(translate, f"--model={tiny_run}", "--engine=litert", "a")


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--quantization=int8"], "--quantization: needs --engine=litert"),
        (["--engine=litert", "--sample"], "--sample: .*--engine=tensorflow"),
        (["--engine=litert", "--prefix=Der"], "--prefix: .*--engine=tensorflow"),
        (["--engine=litert", "--no_repeat_ngram=2"], r"decoding\.no_repeat_ngram=2: .*LiteRT"),
    ],
)
def test_flags_that_the_engine_does_not_support_are_refused(
    call: Call, tiny_run: Path, flags: list[str], problem: str
) -> None:
    with pytest.raises(UsageError, match=f"^{problem}"):
        call(translate, f"--model={tiny_run}", *flags, "a")


@pytest.mark.parametrize("flag", ["--engine=tensorflow", "--engine=litert", "--quantization=int8"])
def test_engine_of_an_export_is_fixed(call: Call, tiny_litert: Path, flag: str) -> None:
    with pytest.raises(UsageError, match=rf"^{flag.partition('=')[0]}: fixed in an export"):
        call(translate, f"--model={tiny_litert}", flag, "a")


def test_trace_needs_a_run(call: Call, tiny_litert: Path) -> None:
    with pytest.raises(UserError, match=f"^{tiny_litert}: an export; .*run"):
        call(trace, f"--model={tiny_litert}", "a")
