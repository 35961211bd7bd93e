import os
from pathlib import Path

import pytest

from tfnmt.config import Config, build_config, flatten
from tfnmt.errors import UserError
from tfnmt.runs.checkpoints import WEIGHTS
from tfnmt.runs.run import Run, newest_finished_run


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def some_weights(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes(b"some")


def started(path: Path, config: Config | None = None) -> Run:
    run = Run(path)
    run.create(config or Config(), b"a tokenizer", "prepared")
    return run


def finished(path: Path, seconds: int) -> Run:
    run = started(path)
    run.summary_path.write_text("{}")
    os.utime(run.summary_path, (seconds, seconds))
    return run


def test_a_run_keeps_its_configuration_and_tokenizer(tmp_path: Path) -> None:
    config = build_config({"model": {"d_model": 128}, "training": {"adam_epsilon": 1e-11}})
    run = Run(tmp_path / "runs" / "a")
    assert not run.exists()
    run.create(config, b"a tokenizer", "prepared")
    assert run.exists()
    assert not run.finished
    assert run.config() == config
    assert run.tokenizer_model() == b"a tokenizer"
    assert names(run.path) == ["config.yaml", "prepared", "tokenizer.model"]


def test_what_a_bundle_does_not_tell_is_asked_of_the_run_itself(tmp_path: Path) -> None:
    run = started(tmp_path)
    (run.path / "prepared").unlink()
    for ask in (run.held_out, lambda: run.check_same_text("prepared")):
        with pytest.raises(UserError, match=f"^{run.path}: does not tell what text"):
            ask()


def test_a_run_may_end_otherwise_than_it_was_to_and_is_not_finished_then(tmp_path: Path) -> None:
    run = started(tmp_path)
    run.summary_path.write_text("{}")
    run.go_on_with(run.config())
    assert run.finished
    ends = {"max_epochs": 50, "max_steps": 7, "max_tokens": 9, "max_minutes": 2.5, "patience": 3}
    longer = build_config({"training": ends})
    run.check_same(longer)
    run.go_on_with(longer)
    assert run.config() == longer
    assert not run.finished


def test_a_run_goes_on_with_its_own_configuration_only(tmp_path: Path) -> None:
    run = started(tmp_path)
    run.check_same(Config())
    other = build_config({"model": {"d_model": 128}, "data": {"max_pairs": 3}})
    with pytest.raises(UserError) as caught:
        run.check_same(other)
    found = {key for key in flatten(other) if key in str(caught.value)}
    assert found == {"data.max_pairs", "model.d_model"}
    assert "--run_dir" in str(caught.value)


@pytest.mark.parametrize("make", ["nothing", "folder", "half"])
def test_a_folder_without_a_configuration_is_no_run(tmp_path: Path, make: str) -> None:
    run = Run(tmp_path / "a")
    if make != "nothing":
        run.path.mkdir()
    if make == "half":
        run.tokenizer_path.write_bytes(b"a tokenizer")
    for use in (run.config, run.weights):
        with pytest.raises(UserError, match="no run there"):
            use()


def test_the_average_stands_for_a_run_before_the_best_before_the_newest(tmp_path: Path) -> None:
    run = started(tmp_path)
    with pytest.raises(UserError, match="no model in this run yet"):
        run.weights()
    kinds = [(run.checkpoints(5), 300), (run.checkpoints(5), 400), (run.best, 200)]
    for snapshots, step in [*kinds, (run.averaged, 100)]:
        path = snapshots.write(step, some_weights)
        assert run.weights() == path / WEIGHTS
        assert run.weights().is_file()


def test_an_average_of_before_the_training_went_on_stands_for_it_no_more(tmp_path: Path) -> None:
    run = finished(tmp_path, seconds=1000)
    average = run.averaged.write(300, some_weights)
    last = run.checkpoints(5).write(400, some_weights)
    os.utime(average, (1000, 1000))
    assert run.weights() == average / WEIGHTS  # the run is finished
    run.summary_path.unlink()
    assert run.weights() == last / WEIGHTS
    os.utime(average)
    os.utime(last, (1000, 1000))
    assert run.weights() == average / WEIGHTS  # made after that checkpoint


def test_a_training_clears_away_what_trainings_left_and_nothing_else(tmp_path: Path) -> None:
    run = started(tmp_path)
    (run.path / "checkpoints").mkdir()
    for left in (".config.yaml.17.aside", "checkpoints/.00000010.17.aside"):
        (run.path / left).write_text("half")
    (run.path / ".out.2.partial").write_text("lines of a translation that goes on")
    with run.held():
        pass
    assert not list(run.path.rglob("*.aside"))
    assert (run.path / ".out.2.partial").exists()


def test_a_folder_that_cannot_be_made_is_the_users_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(UserError, match=rf"^--run_dir={path}: "), Run(path).held():
            pass


def test_best_and_averaged_hold_one_snapshot(tmp_path: Path) -> None:
    run = started(tmp_path)
    for snapshots in (run.best, run.averaged):
        for step in (100, 200):
            snapshots.write(step, some_weights)
        assert [path.name for path in snapshots.all()] == ["00000200"]


def test_the_newest_finished_run_is_the_one_that_ended_last(tmp_path: Path) -> None:
    started(tmp_path / "unfinished")
    (tmp_path / "file").write_text("not a run")
    finished(tmp_path / "z", seconds=1000)
    latest = finished(tmp_path / "m", seconds=3000)
    finished(tmp_path / "a", seconds=2000)
    assert newest_finished_run(tmp_path) == latest


@pytest.mark.parametrize("name", [".", "no such folder"])
def test_without_a_finished_run_the_folder_is_named(tmp_path: Path, name: str) -> None:
    started(tmp_path / "unfinished")
    with pytest.raises(UserError, match="--model: no finished run in ") as caught:
        newest_finished_run(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)


def test_evaluations_are_kept_in_their_order(tmp_path: Path) -> None:
    run = started(tmp_path)
    assert run.evaluations() == []
    first = {"split": "val", "bleu": 30.5, "text": "Grüße\u2028 und\nmehr"}
    run.append_evaluation(first)
    run.append_evaluation({"split": "gr\udcfcn.de"})  # a name that is not UTF-8
    assert run.evaluations() == [first, {"split": "gr\udcfcn.de"}]
    assert len(run.evaluations_path.read_bytes().splitlines()) == 2


def test_half_a_line_is_passed_over_and_harms_none_after_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(tmp_path)
    run.append_evaluation({"split": "val"})
    with run.evaluations_path.open("a") as file:
        file.write('{"split": "te')  # the disk was full
    run.append_evaluation({"split": "test"})
    assert run.evaluations() == [{"split": "val"}, {"split": "test"}]
    assert "evaluations.jsonl: line 2 is not whole, and passed over" in capsys.readouterr().err


def test_a_held_run_keeps_other_trainings_out_until_it_is_let_go(tmp_path: Path) -> None:
    run = Run(tmp_path)
    with run.held(), pytest.raises(UserError, match="another training is at work there"):
        run.held().__enter__()
    with run.held():
        pass


def test_holding_a_run_clears_what_a_killed_training_left(tmp_path: Path) -> None:
    run = Run(tmp_path)
    (tmp_path / "checkpoints" / ".00000003.77.aside").mkdir(parents=True)
    (tmp_path / "checkpoints" / "00000002").mkdir()
    with run.held():
        assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["00000002"]
