import os
from pathlib import Path

import pytest

from tfnmt.errors import UsageError, UserError
from tfnmt.runtime.files import (
    atomic_path,
    check_disk_space,
    check_outputs,
    check_writable,
    is_stream,
    write_atomically,
)


def fail_while_writing(path: Path, error: type[BaseException]) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text("half")
        raise error


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_atomic_path_creates_a_file_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    with atomic_path(path) as temporary:
        temporary.write_text("new")
        assert not path.exists()
    assert path.read_text() == "new"
    assert names(path.parent) == ["file"]


def test_atomic_path_creates_a_folder_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    with atomic_path(path) as temporary:
        temporary.mkdir()
        (temporary / "file").write_text("new")
        assert not path.exists()
    assert (path / "file").read_text() == "new"
    assert names(tmp_path) == ["folder"]


def test_atomic_path_replaces_a_file_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with atomic_path(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, SystemExit])
def test_atomic_path_keeps_the_old_file_after_an_error(
    tmp_path: Path, error: type[BaseException]
) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(error):
        fail_while_writing(path, error)
    assert names(tmp_path) == ["file"]
    assert path.read_text() == "old"


def test_file_system_error_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught, atomic_path(tmp_path / "file") as temporary:
        (temporary / "missing folder").write_text("new")
    assert (
        str(caught.value) == f"{tmp_path / 'file'}: No such file or directory; nothing was written"
    )
    assert names(tmp_path) == []


def test_folder_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    path = tmp_path / "existing"
    path.mkdir()
    (path / "file").write_text("old")
    with pytest.raises(UserError, match="nothing was written"):
        write_atomically(path, b"new")
    assert names(tmp_path) == ["existing"]
    assert (path / "file").read_text() == "old"


def test_file_as_parent_folder_is_a_user_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    with pytest.raises(UserError, match="nothing was written"):
        write_atomically(tmp_path / "file" / "below", b"new")


def test_check_writable_reports_unwritable_paths(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    with pytest.raises(UserError, match="below: File exists; "):
        check_writable(tmp_path / "file" / "below")
    with pytest.raises(UserError, match="a folder; "):
        check_writable(tmp_path)


def test_check_writable_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    for path in (tmp_path / "file", tmp_path / "new", tmp_path / "a" / "b", Path("/dev/null")):
        check_writable(path)
    assert names(tmp_path) == ["a", "file"]
    assert names(tmp_path / "a") == []
    assert (tmp_path / "file").read_text() == "old"


def test_atomic_path_removes_leftovers_of_a_killed_process_with_the_same_id(tmp_path: Path) -> None:
    """In a container every training run is process 1."""
    with atomic_path(tmp_path / "folder") as temporary:
        temporary.mkdir()
    (tmp_path / "folder").rmdir()
    temporary.mkdir()
    (temporary / "half").write_text("half")
    with atomic_path(tmp_path / "folder") as second:
        second.mkdir()
        (second / "file").write_text("new")
    assert names(tmp_path) == ["folder"]
    assert names(tmp_path / "folder") == ["file"]


def test_check_disk_space_leaves_nothing(tmp_path: Path) -> None:
    check_disk_space(tmp_path, 1_000_000)
    assert names(tmp_path) == []


def test_streams_are_recognized_and_written_directly(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert not any(map(is_stream, (tmp_path, tmp_path / "file", tmp_path / "missing")))
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as content:
        with os.fdopen(writer):
            pipe = Path(f"/dev/fd/{writer}")
            assert is_stream(pipe)
            check_writable(pipe)
            write_atomically(pipe, b"content")
        assert content.read() == b"content"


# --- Output files ---------------------------------------------------------------------------------


def test_outputs_that_are_inputs_or_each_other_are_reported_together(tmp_path: Path) -> None:
    text, link = tmp_path / "text", tmp_path / "link"
    text.touch()
    link.symlink_to(text)
    outputs = {"--one": str(link), "--two": str(tmp_path / "new"), "--three": f"{tmp_path}/./new"}
    with pytest.raises(UsageError) as caught:
        check_outputs(outputs, {"--input": [tmp_path / "missing", text]})
    first, second = caught.value.problems
    assert first.startswith(f"--one={link}: is read by --input; ")
    assert second.startswith(f"--three={tmp_path}/./new: is the file of --two; ")


def test_outputs_may_be_missing_new_or_the_same_stream(tmp_path: Path) -> None:
    outputs = {"--one": None, "--two": str(tmp_path / "folder" / "new")}
    check_outputs(outputs, {"--input": [tmp_path / "missing"]})
    check_outputs(dict.fromkeys(("--one", "--two"), "/dev/null"), {"--input": [Path("/dev/null")]})


def test_output_with_the_name_of_a_compressed_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^--one=.*x\.json\.gz: the output is not compressed;"):
        check_outputs({"--one": str(tmp_path / "x.json.gz")}, {})


def test_output_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"^{tmp_path}: a folder; "):
        check_outputs({"--one": str(tmp_path)}, {})
