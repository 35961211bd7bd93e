import os
from pathlib import Path

import pytest

from tfnmt.errors import UserError
from tfnmt.runtime.files import (
    check_room,
    check_writable,
    is_special,
    write_atomically,
    written_aside,
)


def break_off(path: Path, error: type[BaseException]) -> None:
    with written_aside(path) as aside:
        aside.write_text("half")
        raise error


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_appears_when_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    with written_aside(path) as aside:
        aside.write_text("new")
        assert not path.exists()
    assert path.read_text() == "new"
    assert names(path.parent) == ["file"]


def test_a_folder_appears_when_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    with written_aside(path) as aside:
        aside.mkdir()
        (aside / "file").write_text("new")
        assert not path.exists()
    assert (path / "file").read_text() == "new"
    assert names(tmp_path) == ["folder"]


def test_a_file_that_is_there_is_replaced_at_the_end_only(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with written_aside(path) as aside:
        aside.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, SystemExit])
def test_after_an_error_a_file_is_the_old_one(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(error):
        break_off(path, error)
    assert names(tmp_path) == ["file"]
    assert path.read_text() == "old"


def test_an_error_of_the_file_system_is_the_users(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught, written_aside(tmp_path / "file") as aside:
        (aside / "folder that is none").write_text("new")
    assert (
        str(caught.value) == f"{tmp_path / 'file'}: No such file or directory; nothing was written"
    )
    assert names(tmp_path) == []


def test_what_cannot_be_replaced_stays(tmp_path: Path) -> None:
    path = tmp_path / "taken"
    path.mkdir()
    (path / "file").write_text("old")
    with pytest.raises(UserError, match="nothing was written"):
        write_atomically(path, b"new")
    assert names(tmp_path) == ["taken"]
    assert (path / "file").read_text() == "old"


def test_a_parent_that_is_a_file_is_the_users_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    with pytest.raises(UserError, match="nothing was written"):
        write_atomically(tmp_path / "file" / "below", b"new")


def test_what_could_not_be_written_is_told_before(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    with pytest.raises(UserError, match="below: File exists; name another file"):
        check_writable(tmp_path / "file" / "below")
    with pytest.raises(UserError, match="a folder; name a file"):
        check_writable(tmp_path)


def test_looking_whether_a_file_can_be_written_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    for path in (tmp_path / "file", tmp_path / "new", tmp_path / "a" / "b", Path("/dev/null")):
        check_writable(path)
    assert names(tmp_path) == ["a", "file"]
    assert names(tmp_path / "a") == []
    assert (tmp_path / "file").read_text() == "old"


def test_what_a_killed_process_of_the_same_number_left_is_no_obstacle(tmp_path: Path) -> None:
    """In a container every training is process 1."""
    with written_aside(tmp_path / "folder") as aside:
        aside.mkdir()
    (tmp_path / "folder").rmdir()
    aside.mkdir()
    (aside / "half").write_text("half")
    with written_aside(tmp_path / "folder") as again:
        again.mkdir()
        (again / "file").write_text("new")
    assert names(tmp_path) == ["folder"]
    assert names(tmp_path / "folder") == ["file"]


def test_where_there_is_room_checking_leaves_nothing(tmp_path: Path) -> None:
    check_room(tmp_path, 1_000_000)
    assert names(tmp_path) == []


def test_what_is_no_file_is_special_and_can_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert not any(map(is_special, (tmp_path, tmp_path / "file", tmp_path / "missing")))
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as content:
        with os.fdopen(writer):
            pipe = Path(f"/dev/fd/{writer}")
            assert is_special(pipe)
            check_writable(pipe)
            write_atomically(pipe, b"through")
        assert content.read() == b"through"
