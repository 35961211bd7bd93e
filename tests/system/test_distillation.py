"""Knowledge distillation with the commands of docs/how-to/knowledge-distillation.md."""

import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from tfnmt import evaluate, train, translate
from tfnmt.data.corpora.toy import grammar
from tfnmt.runs.run import Run

Call = Callable[..., None]


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Write training sources and a validation set; return the sources and the set's path prefix."""
    for split, count in (("train", 80), ("val", 20)):
        pairs = list(islice(grammar.pairs(split), count))
        for side, language in enumerate(("en", "de")):
            text = "".join(f"{pair[side]}\n" for pair in pairs)
            (tmp_path / f"{split}.{language}").write_text(text, encoding="utf-8")
    return tmp_path / "train.en", tmp_path / "val"


def test_distillation_trains_a_student_on_the_translations_of_its_teacher(
    call: Call, tiny_run: Path, files: tuple[Path, Path], tmp_path: Path
) -> None:
    source, val = files
    student, distilled = tmp_path / "student", tmp_path / "distilled" / "train.de"
    call(
        translate,
        f"--model={tiny_run}",
        f"--input={source}",
        f"--output={distilled}",
        "--max_length=source+5",
    )
    assert len(distilled.read_text().splitlines()) == 80
    call(
        train,
        f"--config={tiny_run / 'config.yaml'}",
        f"--run_dir={student}",
        f"--cache_dir={tmp_path / 'cache'}",
        f"--train={source},{distilled}",
        f"--val={val}.en,{val}.de",
        f"--set=tokenizer.from_run={tiny_run}",
        "--set=model.num_encoder_layers=2",
    )
    assert Run(student).tokenizer_model() == Run(tiny_run).tokenizer_model()
    call(
        evaluate,
        f"--model={student}",
        "--split=val",
        f"--against={tiny_run}",
        f"--report={tmp_path / 'r.md'}",
        f"--json={tmp_path / 'e.json'}",
    )
    evaluation = json.loads((tmp_path / "e.json").read_text())
    assert evaluation["sentences"] == 20
    assert evaluation["against"]["model"] == str(tiny_run)
    assert (tmp_path / "r.md").is_file()
