"""Output files whose writer may be killed and resumed, and lines on stdout."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tfnmt.errors import UsageError, UserError
from tfnmt.runtime.resumable_file import ResumableFile

JOB = {"model": "run", "step": 3, "--seed": 1, "--prefix": None}


@pytest.fixture
def file(tmp_path: Path) -> ResumableFile:
    return ResumableFile(tmp_path / "out")


def failing(*lines: str, error: BaseException) -> Iterator[str]:
    yield from lines
    raise error


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_file_appears_when_complete_without_leftovers(file: ResumableFile) -> None:
    file.start(JOB)
    file.write(["one", "", "zwei — три"])
    assert file.path.read_text() == "one\n\nzwei — три\n"
    assert names(file.path.parent) == [".out.job", "out"]


def test_old_file_remains_until_the_new_one_is_complete(file: ResumableFile) -> None:
    file.path.write_text("old\n")
    file.start(JOB)
    seen = []

    def lines() -> Iterator[str]:
        for line in ("one", "two"):
            seen.append((file.path.read_text(), file.partial.read_text()))
            yield line

    file.write(lines())
    assert seen == [("old\n", ""), ("old\n", "one\n")]  # each line is written immediately
    assert file.path.read_text() == "one\ntwo\n"


def test_folder_is_created_and_link_is_followed(tmp_path: Path) -> None:
    file = ResumableFile(tmp_path / "new" / "folder" / "out")
    with file.locked():
        file.start(JOB)
        file.write(["one"])
    (tmp_path / "link").symlink_to(file.path)
    linked = ResumableFile(tmp_path / "link")
    linked.start(JOB)
    linked.write(["two"])
    assert (tmp_path / "link").is_symlink()
    assert file.path.read_text() == "two\n"


@pytest.mark.parametrize("end", ["", "th", "\r", "\x00"])
def test_resume_removes_an_incomplete_line_and_counts_the_others(
    file: ResumableFile, end: str
) -> None:
    file.start(JOB)
    file.partial.write_text(f"one\n\ntwo\n{end}", newline="")
    assert file.resume(JOB) == 3
    assert file.partial.read_bytes() == b"one\n\ntwo\n"
    file.write(["three"])
    assert file.path.read_bytes() == b"one\n\ntwo\nthree\n"
    assert names(file.path.parent) == [".out.job", "out"]


def test_resume_removes_an_incomplete_character(file: ResumableFile) -> None:
    file.start(JOB)
    file.partial.write_bytes("one\nздесь".encode()[:-1])
    assert file.resume(JOB) == 1
    assert file.partial.read_bytes() == b"one\n"


def test_other_line_separators_inside_a_line_are_kept(file: ResumableFile) -> None:
    odd = ["a\r", "b\rc", "\x00", "d\u2028e\x85f\x0bg", "\ufeffh", "\r"]
    file.start(JOB)
    with pytest.raises(RuntimeError):
        file.write(failing(*odd, error=RuntimeError()))
    assert file.resume(JOB) == len(odd)
    file.write(["end"])
    assert file.path.read_bytes() == "".join(f"{line}\n" for line in [*odd, "end"]).encode()


def test_resume_without_earlier_lines_starts_at_the_beginning(file: ResumableFile) -> None:
    assert file.resume(JOB) == 0
    file.write(["one"])
    assert file.path.read_text() == "one\n"


def test_start_discards_earlier_lines(file: ResumableFile) -> None:
    file.start(JOB)
    file.partial.write_text("old\n")
    file.start(JOB | {"step": 4})
    assert file.resume(JOB | {"step": 4}) == 0
    file.write(["new"])
    assert file.path.read_text() == "new\n"


def test_finished_until_started_again(file: ResumableFile) -> None:
    assert not file.finished
    with file.locked():
        file.start(JOB)
        assert not file.finished
        file.write(["one"])
    assert file.finished
    with file.locked():
        file.start(JOB)
    assert not file.finished  # the old file remains, and a new one was started


def test_job_of_a_finished_file_can_be_checked(file: ResumableFile) -> None:
    file.start(JOB)
    file.write(["one"])
    file.check_job(JOB)
    with pytest.raises(UsageError, match=rf"^--resume: {file.path} was made with .* step; "):
        file.check_job(JOB | {"step": 4})


@pytest.mark.parametrize("job", ["", "[1]", '{"step": '])
def test_resume_starts_over_if_no_line_was_written(file: ResumableFile, job: str) -> None:
    """As after a kill between the two writes of `start`."""
    file.partial.touch()
    file.job_path.write_text(job)
    assert file.resume(JOB) == 0
    file.check_job(JOB)


def test_resume_refuses_another_job_and_keeps_the_lines(file: ResumableFile) -> None:
    file.start(JOB)
    file.partial.write_text("one\nhal")
    with pytest.raises(UsageError, match=r"^--resume: .* different step, --prefix; "):
        file.resume(JOB | {"step": 4, "--prefix": "Der"})
    with pytest.raises(UsageError, match=r"^--resume: .* different --new; "):
        file.resume(JOB | {"--new": True})
    assert file.partial.read_text() == "one\nhal"
    file.job_path.unlink()
    with pytest.raises(UsageError, match=r"^--resume: .* different model, step, --seed; "):
        file.resume(JOB)


@pytest.mark.parametrize("error", [RuntimeError("x"), KeyboardInterrupt(), UserError("no input")])
def test_finished_lines_remain_after_an_error(
    file: ResumableFile, error: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    file.path.write_text("old\n")
    file.start(JOB)
    with pytest.raises(type(error)):
        file.write(failing("one", "two", error=error))
    assert f"{file.partial}; continue with --resume" in capsys.readouterr().err
    assert file.path.read_text() == "old\n"
    assert file.resume(JOB) == 2
    file.write(["three"])
    assert file.path.read_text() == "one\ntwo\nthree\n"


def test_full_disk_error_names_the_finished_lines(file: ResumableFile) -> None:
    file.start(JOB)
    file.partial.unlink()
    file.partial.symlink_to("/dev/full")
    with pytest.raises(UserError, match=r"out: No space left on device; .*\.partial"):
        file.write(["one"])


def test_folder_as_output_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a folder; "):
        ResumableFile(tmp_path).locked()
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"nothing was written"):
        ResumableFile(tmp_path / "file" / "out").locked()


# --- Two writers ---------------------------------------------------------------------------------


def test_second_writer_is_refused_until_the_first_ends(file: ResumableFile) -> None:
    with file.locked():
        file.start(JOB)
        with pytest.raises(UserError, match="out: another process is writing"):
            ResumableFile(file.path).locked()
        file.write(["one", "two"])
    assert file.path.read_text() == "one\ntwo\n"
    with ResumableFile(file.path).locked():
        pass


def test_resume_refuses_lines_without_a_recorded_job(file: ResumableFile) -> None:
    file.partial.write_text("one\n")
    with file.locked(), pytest.raises(UsageError, match="different model, step"):
        file.resume(JOB)


def test_full_disk_at_the_start_is_reported(file: ResumableFile) -> None:
    file.job_path.symlink_to("/dev/full")
    with pytest.raises(UserError, match=r"out: No space left on device; nothing was written$"):
        file.start(JOB)
