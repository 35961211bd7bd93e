import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.syscalls import killed_states
from tfnmt.config import Config, build_config, flatten
from tfnmt.errors import UserError
from tfnmt.runs.checkpoints import WEIGHTS
from tfnmt.runs.run import Run, base_folder, cache_folder, newest_finished_run


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def write_weights(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes(b"some")


def start_run(path: Path, config: Config | None = None) -> Run:
    run = Run(path)
    run.create(config or Config(), b"a tokenizer", "prepared")
    return run


def finish_run(path: Path, seconds: int) -> Run:
    run = start_run(path)
    run.summary_path.write_text("{}")
    os.utime(run.summary_path, (seconds, seconds))
    return run


def test_create_writes_configuration_and_tokenizer(tmp_path: Path) -> None:
    config = build_config({"model": {"d_model": 128}, "training": {"adam_epsilon": 1e-11}})
    run = Run(tmp_path / "runs" / "a")
    assert not run.exists()
    run.create(config, b"a tokenizer", "prepared")
    assert run.exists()
    assert not run.finished
    assert run.config() == config
    assert run.tokenizer_model() == b"a tokenizer"
    assert names(run.path) == ["config.yaml", "prepared", "tokenizer.model"]


def test_bundle_does_not_record_its_training_data(tmp_path: Path) -> None:
    run = start_run(tmp_path)
    (run.path / "prepared").unlink()
    for read in (run.held_out, lambda: run.check_data("prepared", b"a tokenizer")):
        with pytest.raises(UserError, match=f"^{run.path}: does not record its training data"):
            read()


def test_run_with_a_changed_end_is_not_finished(tmp_path: Path) -> None:
    run = start_run(tmp_path)
    run.summary_path.write_text("{}")
    run.accept_changes(run.config())
    assert run.finished
    limits = {"max_epochs": 50, "max_steps": 7, "max_tokens": 9, "max_minutes": 2.5, "patience": 3}
    longer = build_config({"training": limits})
    run.check_config(longer)
    run.accept_changes(longer)
    assert run.config() == longer
    assert not run.finished


def test_run_refuses_a_different_configuration(tmp_path: Path) -> None:
    run = start_run(tmp_path)
    run.check_config(Config())
    other = build_config({"model": {"d_model": 128}, "data": {"max_pairs": 3}})
    with pytest.raises(UserError) as caught:
        run.check_config(other)
    ours = flatten(Config())
    assert len(caught.value.problems) == 2
    for key, problem in zip(
        ("data.max_pairs", "model.d_model"), caught.value.problems, strict=True
    ):
        assert problem.startswith(f"{run.path}: {key}={flatten(other)[key]}: ")
        assert f" {ours[key]};" in problem


def test_run_names_a_missing_key(tmp_path: Path) -> None:
    run = start_run(tmp_path, build_config({"data": {"max_pairs": 3}}))
    with pytest.raises(UserError) as caught:
        run.check_config(Config())
    (problem,) = caught.value.problems
    assert problem.startswith(f"{run.path}: data.max_pairs: missing; the run was started with 3; ")


EXTEND = """
from tfnmt.config import build_config
from tfnmt.runs.run import Run

def action(folder):
    Run(folder).accept_changes(build_config({"training": {"max_epochs": 50}}))
"""


def test_extended_run_is_never_finished_when_it_is_killed(tmp_path: Path) -> None:
    run = start_run(tmp_path / "run")
    run.summary_path.write_text("{}")
    before, longer = run.config(), build_config({"training": {"max_epochs": 50}})
    states = list(map(Run, killed_states(EXTEND, run.path, tmp_path / "states")))
    found = [(state.config() == longer, state.finished) for state in states]
    assert set(found) == {(False, True), (False, False), (True, False)}
    assert all(state.config() in (before, longer) for state in states)


CREATE = """
from tests.syscalls import killed_states
from tfnmt.config import Config
from tfnmt.runs.run import Run

def action(folder):
    Run(folder).create(Config(), b"a tokenizer", "name checksum")
"""


def test_killed_creation_leaves_no_incomplete_run(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    states = list(map(Run, killed_states(CREATE, tmp_path / "run", tmp_path / "states")))
    assert {state.exists() for state in states} == {True, False}
    for state in states:
        state.check_free()  # the next command starts it again
        if state.exists():
            assert state.config() == Config()
            state.check_data("name checksum", b"a tokenizer")


def test_run_keeps_its_training_data_and_tokenizer(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.create(Config(), b"a tokenizer", "name checksum")
    for identity in ("other checksum", "name other"):
        with pytest.raises(UserError, match=f"^{run.path}: the training or validation data"):
            run.check_data(identity, b"a tokenizer")
    with pytest.raises(UserError, match=f"^{run.tokenizer_path}: damaged"):
        run.check_data("name checksum", b"another")


def test_run_of_an_earlier_version_recorded_only_the_name_of_its_data(tmp_path: Path) -> None:
    run = start_run(tmp_path)
    (tmp_path / "prepared").write_text("name\ntest\n")
    run.check_data("name checksum", b"a tokenizer")
    assert run.held_out() == ("test",)


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\n", None])
def test_damaged_record_of_the_training_data_is_a_user_error(
    tmp_path: Path, content: bytes | None
) -> None:
    run = start_run(tmp_path)
    (tmp_path / "prepared").unlink()
    if content is None:
        (tmp_path / "prepared").mkdir()
    else:
        (tmp_path / "prepared").write_bytes(content)
    with pytest.raises(UserError, match=f"^{tmp_path / 'prepared'}: "):
        run.check_data("prepared", b"a tokenizer")


def test_new_run_refuses_a_folder_with_other_files(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.check_free()
    for name in ("config.yaml", "notes.txt", "checkpoints"):
        (tmp_path / name).write_text("mine")
        with pytest.raises(UserError, match=rf"^--run_dir={tmp_path}: contains {name} "):
            run.check_free()
        (tmp_path / name).unlink()
    for name in (".lock", ".config.yaml.7.tmp", "tokenizer.model", "prepared"):
        (tmp_path / name).write_text("left by a killed process")
    run.check_free()
    start_run(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    run.check_free()


def test_run_without_a_checkpoint_to_resume_from_is_refused(tmp_path: Path) -> None:
    run = start_run(tmp_path)
    run.check_resumable()
    run.best.write(200, write_weights)
    with pytest.raises(UserError, match=rf"^{tmp_path}: cannot be resumed, because checkpoints/"):
        run.check_resumable()
    first_checkpoint = run.config().training.checkpoint_steps
    run.append_validation(first_checkpoint, 1.5)
    run.check_resumable()  # killed before the first checkpoint
    run.append_validation(first_checkpoint + 1, 1.5)
    with pytest.raises(UserError, match=rf"^{tmp_path}: cannot be resumed, because checkpoints/"):
        run.check_resumable()
    run.checkpoints().write(300, write_weights)
    run.check_resumable()


@pytest.mark.parametrize("name", ["config.yaml", "x" * 300])
def test_run_that_cannot_be_read_is_a_user_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.yaml").mkdir()
    with pytest.raises(UserError, match=rf"^{tmp_path / name}: "):
        Run(tmp_path / name).config()


@pytest.fixture
def another_user() -> Iterator[Callable[[Path], AbstractContextManager[None]]]:
    """Become a user who cannot read a folder: `with another_user(folder)`."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")

    @contextmanager
    def become(folder: Path) -> Iterator[None]:
        folder.chmod(0o700)
        os.seteuid(65534)
        try:
            yield
        finally:
            os.seteuid(0)

    return become


def test_run_of_another_user_is_a_user_error(
    another_user: Callable[[Path], AbstractContextManager[None]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        run = start_run(Path(folder) / "run")
        run.best.write(1, write_weights)
        denied = pytest.raises(UserError, match=rf"^{run.path / 'best'}: Permission denied")
        with another_user(run.path / "best"), denied:
            run.weights()
        with another_user(run.path):
            for read in (run.config, run.weights, run.check_free, run.validations):
                with pytest.raises(UserError, match="Permission denied"):
                    read()
            assert not run.finished


@pytest.mark.parametrize("content", ["nothing", "folder", "tokenizer"])
def test_folder_without_configuration_is_not_a_run(tmp_path: Path, content: str) -> None:
    run = Run(tmp_path / "a")
    if content != "nothing":
        run.path.mkdir()
    if content == "tokenizer":
        run.tokenizer_path.write_bytes(b"a tokenizer")
    for read in (run.config, run.weights):
        with pytest.raises(UserError, match="not a run"):
            read()


def test_weights_are_averaged_else_best_else_newest(tmp_path: Path) -> None:
    run = start_run(tmp_path)
    with pytest.raises(UserError, match="no checkpoint yet"):
        run.weights()
    last = run.checkpoints(5)
    for checkpoints, step in ((last, 300), (last, 400), (run.best, 200), (run.averaged, 400)):
        path = checkpoints.write(step, write_weights)
        assert run.weights() == path / WEIGHTS
        assert run.weights().is_file()


def test_averaged_weights_are_ignored_after_training_was_resumed(tmp_path: Path) -> None:
    """The step decides. The time of the folders does not, because a copy changes it."""
    run = finish_run(tmp_path, seconds=1000)
    average = run.averaged.write(300, write_weights)
    last = run.checkpoints(5).write(400, write_weights)
    os.utime(last, (1000, 1000))
    assert run.weights() == average / WEIGHTS  # the run is finished
    run.summary_path.unlink()
    assert run.weights() == last / WEIGHTS
    average = run.averaged.write(400, write_weights)
    os.utime(average, (1000, 1000))
    assert run.weights() == average / WEIGHTS  # the average of all checkpoints


def test_lock_removes_only_temporary_files_of_training(tmp_path: Path) -> None:
    run = start_run(tmp_path)
    (run.path / "checkpoints").mkdir()
    for left in (".config.yaml.17.tmp", "checkpoints/.00000010.17.tmp"):
        (run.path / left).write_text("half")
    (run.path / ".out.2.partial").write_text("lines of a translation that can be resumed")
    with run.locked():
        pass
    assert not list(run.path.rglob("*.tmp"))
    assert (run.path / ".out.2.partial").exists()


def test_unwritable_run_folder_is_a_user_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(UserError, match=rf"^--run_dir={path}: "), Run(path).locked():
            pass


def test_best_and_averaged_keep_one_checkpoint(tmp_path: Path) -> None:
    run = start_run(tmp_path)
    for checkpoints in (run.best, run.averaged):
        for step in (100, 200):
            checkpoints.write(step, write_weights)
        assert [path.name for path in checkpoints.all()] == ["00000200"]


def test_newest_finished_run_finished_last(tmp_path: Path) -> None:
    start_run(tmp_path / "unfinished")
    (tmp_path / "file").write_text("not a run")
    finish_run(tmp_path / "z", seconds=1000)
    latest = finish_run(tmp_path / "m", seconds=3000)
    finish_run(tmp_path / "a", seconds=2000)
    assert newest_finished_run(tmp_path) == latest


@pytest.mark.parametrize("name", [".", "no such folder"])
def test_newest_finished_run_of_no_runs_is_none(tmp_path: Path, name: str) -> None:
    start_run(tmp_path / "unfinished")
    assert newest_finished_run(tmp_path / name) is None


def test_cache_of_a_wheel_is_in_the_folder_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cache_folder() == base_folder() / ".cache"
    monkeypatch.setattr("tfnmt.runs.run._repository", lambda: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "tfnmt"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "tfnmt"


def test_evaluations_keep_their_order(tmp_path: Path) -> None:
    run = start_run(tmp_path)
    assert run.evaluations() == []
    first = {"split": "val", "bleu": 30.5, "text": "Grüße\u2028 und\nmehr"}
    run.append_evaluation(first)
    run.append_evaluation({"split": "gr\udcfcn.de"})  # a name that is not UTF-8
    assert run.evaluations() == [first, {"split": "gr\udcfcn.de"}]
    assert len(run.evaluations_path.read_bytes().splitlines()) == 2


def test_invalid_lines_of_validations_are_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(tmp_path)
    run.append_validation(100, 1.5)
    lines = ["[1]", '{"step": "2", "bleu": 3}', '{"step": 4}', "[" * 10_000, "\xff"]
    with (tmp_path / "validations.jsonl").open("a", encoding="latin-1") as file:
        file.writelines(f"{line}\n" for line in lines)
    run.append_validation(200, 2)
    assert run.validations() == {100: 1.5, 200: 2}
    assert "line 6 is incomplete or invalid" in capsys.readouterr().err


def test_incomplete_line_is_skipped_and_later_lines_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(tmp_path)
    run.append_evaluation({"split": "val"})
    with run.evaluations_path.open("a") as file:
        file.write('{"split": "te')  # the disk was full
    run.append_evaluation({"split": "test"})
    assert run.evaluations() == [{"split": "val"}, {"split": "test"}]
    assert "evaluations.jsonl: line 2 is incomplete" in capsys.readouterr().err


def test_lock_excludes_other_training_processes(tmp_path: Path) -> None:
    run = Run(tmp_path)
    with run.locked(), pytest.raises(UserError, match=f"^--run_dir={run.path}: another process"):
        run.locked().__enter__()
    with run.locked():
        pass


def test_lock_removes_leftovers_of_a_killed_process(tmp_path: Path) -> None:
    run = Run(tmp_path)
    (tmp_path / "checkpoints" / ".00000003.77.tmp").mkdir(parents=True)
    (tmp_path / "checkpoints" / "00000002").mkdir()
    with run.locked():
        assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["00000002"]


def test_damaged_configuration_of_a_run_is_refused(tmp_path: Path) -> None:
    run = start_run(tmp_path)
    path = tmp_path / "config.yaml"
    content = path.read_text()
    for damaged in ("", content[: content.index("decoding:")]):
        path.write_text(damaged)
        with pytest.raises(UserError, match=rf"^{path}: damaged"):
            run.config()
    path.write_text(content.replace("dropout:", "future:"))
    with pytest.raises(UserError, match=rf"^{path}: .*future"):
        run.config()
