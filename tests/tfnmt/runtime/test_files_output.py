"""A file that grows, and whose writer may be killed."""

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tfnmt.errors import UsageError, UserError
from tfnmt.runtime.files import GrowingFile, write_lines

JOB = {"model": "run", "step": 3, "--seed": 1, "--prefix": None}


@pytest.fixture
def file(tmp_path: Path) -> GrowingFile:
    return GrowingFile(tmp_path / "out")


def broken(*lines: str, error: BaseException) -> Iterator[str]:
    yield from lines
    raise error


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_appears_when_it_is_whole_and_nothing_else_stays(file: GrowingFile) -> None:
    file.begin(JOB)
    file.write(["one", "", "zwei — три"])
    assert file.path.read_text() == "one\n\nzwei — три\n"
    assert names(file.path.parent) == ["out"]


def test_the_old_file_stays_until_the_end(file: GrowingFile) -> None:
    file.path.write_text("old\n")
    file.begin(JOB)
    seen = []

    def lines() -> Iterator[str]:
        for line in ("one", "two"):
            seen.append((file.path.read_text(), file.partial.read_text()))
            yield line

    file.write(lines())
    assert seen == [("old\n", ""), ("old\n", "one\n")]  # and each line is there at once
    assert file.path.read_text() == "one\ntwo\n"


def test_the_folder_is_made_and_a_link_is_followed(tmp_path: Path) -> None:
    file = GrowingFile(tmp_path / "new" / "folder" / "out")
    with file.held():
        file.begin(JOB)
        file.write(["one"])
    (tmp_path / "link").symlink_to(file.path)
    linked = GrowingFile(tmp_path / "link")
    linked.begin(JOB)
    linked.write(["two"])
    assert (tmp_path / "link").is_symlink()
    assert file.path.read_text() == "two\n"


@pytest.mark.parametrize("end", ["", "th", "\r", "\x00"])
def test_half_a_line_is_cut_off_and_the_rest_is_counted(file: GrowingFile, end: str) -> None:
    file.begin(JOB)
    file.partial.write_text(f"one\n\ntwo\n{end}", newline="")
    assert file.resume(JOB) == 3
    assert file.partial.read_bytes() == b"one\n\ntwo\n"
    file.write(["three"])
    assert file.path.read_bytes() == b"one\n\ntwo\nthree\n"
    assert names(file.path.parent) == ["out"]


def test_half_a_letter_is_cut_off(file: GrowingFile) -> None:
    file.begin(JOB)
    file.partial.write_bytes("one\nздесь".encode()[:-1])
    assert file.resume(JOB) == 1
    assert file.partial.read_bytes() == b"one\n"


def test_other_ends_of_lines_inside_a_line_are_kept(file: GrowingFile) -> None:
    odd = ["a\r", "b\rc", "\x00", "d\u2028e\x85f\x0bg", "\ufeffh", "\r"]
    file.begin(JOB)
    with pytest.raises(RuntimeError):
        file.write(broken(*odd, error=RuntimeError()))
    assert file.resume(JOB) == len(odd)
    file.write(["end"])
    assert file.path.read_bytes() == "".join(f"{line}\n" for line in [*odd, "end"]).encode()


def test_without_anything_done_one_resumes_at_the_beginning(file: GrowingFile) -> None:
    assert file.resume(JOB) == 0
    file.write(["one"])
    assert file.path.read_text() == "one\n"


def test_nothing_of_before_is_left_when_one_begins_anew(file: GrowingFile) -> None:
    file.begin(JOB)
    file.partial.write_text("old\n")
    file.begin(JOB | {"step": 4})
    assert file.resume(JOB | {"step": 4}) == 0
    file.write(["new"])
    assert file.path.read_text() == "new\n"


def test_it_is_finished_when_it_is_whole_and_not_begun_anew(file: GrowingFile) -> None:
    assert not file.finished
    with file.held():
        file.begin(JOB)
        assert not file.finished
        file.write(["one"])
    assert file.finished
    with file.held():
        assert not file.finished
        file.begin(JOB)
    assert not file.finished  # the old one is there, and another was begun


def test_another_job_is_refused_and_what_is_done_stays(file: GrowingFile) -> None:
    file.begin(JOB)
    file.partial.write_text("one\nhal")
    with pytest.raises(UsageError, match=r"was begun with another step, --prefix; go on as it"):
        file.resume(JOB | {"step": 4, "--prefix": "Der"})
    with pytest.raises(UsageError, match=r"was begun with another --new; go on"):
        file.resume(JOB | {"--new": True})
    assert file.partial.read_text() == "one\nhal"
    file.job_path.unlink()
    with pytest.raises(UsageError, match=r"was begun with another model, step, --seed; go on"):
        file.resume(JOB)


@pytest.mark.parametrize("error", [RuntimeError("x"), KeyboardInterrupt(), UserError("no input")])
def test_what_was_done_stays_when_the_lines_break_off(
    file: GrowingFile, error: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    file.path.write_text("old\n")
    file.begin(JOB)
    with pytest.raises(type(error)):
        file.write(broken("one", "two", error=error))
    assert f"what is done lies in {file.partial}; --resume goes on" in capsys.readouterr().err
    assert file.path.read_text() == "old\n"
    assert file.resume(JOB) == 2
    file.write(["three"])
    assert file.path.read_text() == "one\ntwo\nthree\n"


def test_a_full_disk_says_where_what_is_done_lies(file: GrowingFile) -> None:
    file.begin(JOB)
    file.partial.symlink_to("/dev/full")
    with pytest.raises(UserError, match=r"out: No space left on device; what is done lies in"):
        file.write(["one"])


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a folder; name a file"):
        GrowingFile(tmp_path).held()
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"nothing was written"):
        GrowingFile(tmp_path / "file" / "out").held()


# --- Two at once --------------------------------------------------------------------------------


def test_a_second_writer_is_refused_until_the_first_has_gone(file: GrowingFile) -> None:
    with file.held():
        file.begin(JOB)
        with pytest.raises(UserError, match="out: another process is writing it; wait for it"):
            GrowingFile(file.path).held()
        file.write(["one", "two"])
    assert file.path.read_text() == "one\ntwo\n"
    with GrowingFile(file.path).held():
        pass


def test_a_kill_before_the_job_was_noted_is_no_job_of_ours(file: GrowingFile) -> None:
    file.partial.write_text("one\n")
    with file.held(), pytest.raises(UsageError, match="was begun with another model, step"):
        file.resume(JOB)


# --- Elsewhere ----------------------------------------------------------------------------------


def test_lines_go_to_stdout_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8"))
    seen = []

    def lines() -> Iterator[str]:
        for line in ("one", "zwölf"):
            yield line
            seen.append(raw.getvalue().decode())

    write_lines(lines(), None)
    assert seen == ["one\n", "one\nzwölf\n"]


def test_lines_go_into_a_pipe_that_the_system_names() -> None:
    """As `--output=>(gzip > lines.gz)` and `--output=/dev/stdout | cat` name one."""
    reader, writer = os.pipe()
    with os.fdopen(reader) as lines:
        with os.fdopen(writer, "w"):
            write_lines(["one", "two"], f"/dev/fd/{writer}")
        assert lines.read() == "one\ntwo\n"
    write_lines(["one"], "/dev/null")


def test_where_there_is_no_room_for_the_job_nothing_was_written(file: GrowingFile) -> None:
    file.job_path.symlink_to("/dev/full")
    with pytest.raises(UserError, match=r"out: No space left on device; nothing was written$"):
        file.begin(JOB)


def test_what_is_full_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match=r"^/dev/full: No space left on device$"):
        write_lines(["one"], "/dev/full")
    command = "from tfnmt.runtime.files import write_lines; write_lines(['one'], None)"
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-c", command], stdout=full, check=False)
    assert done.returncode == 1
    errors = capfd.readouterr().err.splitlines()
    assert errors[-1] == "tfnmt.errors.UserError: stdout: No space left on device"
