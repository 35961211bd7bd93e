from pathlib import Path
from typing import Any

import pytest

from tfnmt.config import Config, build_config
from tfnmt.diversification.plan import make_stages
from tfnmt.diversification.stages import Merging, Training, Translation
from tfnmt.errors import UsageError

FOLDER = Path("/folder")


def config(**section: Any) -> Config:
    return build_config({"tokenizer": {"vocab_size": 500}, "diversification": section})


def trainings(config: Config) -> dict[str, Training]:
    stages = make_stages(FOLDER, config)
    return {stage.path.name: stage for stage in stages if isinstance(stage, Training)}


def test_stages_are_two_teachers_their_translations_and_the_student() -> None:
    assert [stage.name for stage in make_stages(FOLDER, config())] == [
        "train round-1/en-de-1",
        "translate into round-1/en-de-1.beam.de",
        "train round-1/de-en-1",
        "translate into round-1/de-en-1.beam.en",
        "merge round-1/corpus-en-de",
        "train folder/student",
    ]


def test_each_decoding_of_each_teacher_is_a_part_of_the_corpus() -> None:
    changed = config(teachers=2, real_copies=3, backward=["beam", "sampling"], temperature=0.7)
    stages = make_stages(FOLDER, changed)
    translations = [stage for stage in stages if isinstance(stage, Translation)]
    outputs = [stage.output.name for stage in translations]
    assert outputs == [
        *("en-de-1.beam.de", "en-de-2.beam.de", "de-en-1.beam.en", "de-en-1.sampling.en"),
        *("de-en-2.beam.en", "de-en-2.sampling.en"),
    ]
    assert {stage.source.name for stage in translations[:2]} == {"train.en"}
    assert {stage.source.name for stage in translations[2:]} == {"train.de"}
    assert translations[-1].flags == ("--sample", "--temperature=0.7", "--seed=2")
    (corpus,) = [stage for stage in stages if isinstance(stage, Merging)]
    assert [part.synthetic for part in corpus.parts] == [None] * 3 + ["de"] * 2 + ["en"] * 4
    assert stages[-1].copies == 9


def test_teachers_have_different_seeds_in_each_round_and_the_real_text_in_the_first() -> None:
    found = make_stages(FOLDER, config(teachers=2, rounds=2))
    runs = [stage for stage in found if isinstance(stage, Training)]
    seeds = [run.config.training.seed for run in runs[:-1]]
    assert seeds == [1, 2, 1, 2, 3, 4, 3, 4]
    train = {run.path.parent.name + run.path.name[:2]: run.config.data.train for run in runs}
    assert train["round-1de"] == ("/folder/real/train.de", "/folder/real/train.en")
    assert train["round-2de"] == tuple(
        f"/folder/round-1/corpus-de-en/train.{language}" for language in ("de", "en")
    )
    assert train["folderst"] == tuple(
        f"/folder/round-2/corpus-en-de/train.{language}" for language in ("en", "de")
    )
    assert {run.config.data.val for run in runs if run.config.data.source == "en"} == {
        ("/folder/real/val.en", "/folder/real/val.de")
    }


def test_student_has_the_tokenizer_of_the_first_teacher_with_its_vocabulary() -> None:
    changed = config(forward_teacher=["tokenizer.vocab_size=700"])
    student = trainings(changed)["student"].config.tokenizer
    assert student.from_run == "/folder/round-1/en-de-1"
    assert student.vocab_size == 700
    backward_only = trainings(config(forward=[]))
    assert list(backward_only) == ["de-en-1", "student"]
    assert backward_only["student"].config.tokenizer.from_run == "/folder/round-1/de-en-1"


def test_given_tokenizer_is_that_of_all_runs() -> None:
    given = build_config({"tokenizer": {"from_run": "/other"}})
    assert {run.config.tokenizer.from_run for run in trainings(given).values()} == {"/other"}


def test_each_run_has_its_own_changes_and_keeps_repeated_pairs() -> None:
    cleaned = build_config(
        {
            "cleaning": {"duplicates": True},
            "diversification": {
                "forward_teacher": ["model.d_ff=11"],
                "backward_teacher": ["model.d_ff=12"],
                "student": ["model.d_ff=13", "training.max_tokens=99"],
            },
        }
    )
    runs = trainings(cleaned)
    assert {name: run.config.model.d_ff for name, run in runs.items()} == {
        "en-de-1": 11,
        "de-en-1": 12,
        "student": 13,
    }
    assert runs["student"].config.training.max_tokens == 99
    assert not any(run.config.cleaning.duplicates for run in runs.values())


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ("model.d_fff=3", "diversification.student: model.d_fff: unknown key; did you mean d_ff?"),
        ("d_ff=3", "diversification.student d_ff=3: not of the form SECTION.KEY=VALUE"),
    ],
)
def test_invalid_change_is_reported_with_its_key(changes: str, problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        make_stages(FOLDER, config(student=[changes]))
    assert caught.value.problems[0].startswith(problem)
