import fcntl
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.syscalls import Disk, record
from tfnmt.errors import UsageError, UserError
from tfnmt.runtime.files import (
    atomic_folder,
    atomic_path,
    check_disk_space,
    check_folder,
    check_outputs,
    check_writable,
    exclusive,
    is_stream,
    parse_json,
    remove_leftovers,
    write_atomically,
    write_lines,
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


# --- Durability -----------------------------------------------------------------------------------

WRITING = """
import sys
from pathlib import Path
from tfnmt.runtime.files import append_line, atomic_folder, atomic_path
from tfnmt.runtime.resumable_file import ResumableFile

path = Path(sys.argv[2])

def fill(folder):
    (folder / "one").write_bytes(b"1")
    (folder / "inner").mkdir()
    (folder / "inner" / "two").write_bytes(b"2")

if sys.argv[1] == "file":
    with atomic_path(path) as temporary:
        temporary.write_bytes(b"new")
if sys.argv[1] == "folder":
    with atomic_path(path) as temporary:
        temporary.mkdir()
        fill(temporary)
if sys.argv[1] == "replaced folder":
    for _ in range(2):
        with atomic_folder(path) as temporary:
            fill(temporary)
if sys.argv[1] == "resumable":
    file = ResumableFile(path)
    with file.locked():
        file.start({})
        file.write(["one", "two"])
if sys.argv[1] == "line":
    append_line(path, b"{}\\n")
"""
"""Writes a path in the way of the first argument."""


@pytest.mark.parametrize("way", ["file", "folder", "replaced folder", "resumable", "line"])
def test_content_is_synced_before_the_rename_and_the_folder_afterwards(
    tmp_path: Path, way: str
) -> None:
    folder = tmp_path if way == "line" else tmp_path / "new" / "folder"
    command = [sys.executable, "-c", WRITING, way, folder / "path"]
    calls = record(command, tmp_path)
    disk = Disk()
    for call in calls:
        disk.apply(call)
    assert (folder / "path").exists()
    assert str(folder / "path") in disk.nodes
    removed_last = way == "replaced folder"  # need not be on the disk
    assert disk.unsynced() == ([str(folder)] if removed_last else [])


def test_atomic_folder_replaces_a_folder_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    for content in ("old", "new"):
        with atomic_folder(path) as temporary:
            (temporary / content).write_text(content)
            assert names(tmp_path) == [temporary.name, *(["folder"] if content == "new" else [])]
    assert names(path) == ["new"]
    assert names(tmp_path) == ["folder"]


def test_atomic_folder_without_an_exchange_replaces_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some file systems, such as NFS, cannot exchange two names."""
    monkeypatch.setattr("tfnmt.runtime.files._RENAME_EXCHANGE", -1)
    test_atomic_folder_replaces_a_folder_at_the_end(tmp_path)


def test_exclusive_refuses_a_second_holder_and_removes_its_file(tmp_path: Path) -> None:
    lock = tmp_path / "new" / ".lock"
    with exclusive(lock, "place", "busy"), pytest.raises(UserError, match=r"^place: busy$"):
        exclusive(lock, "place", "busy").__enter__()
    with exclusive(lock, "place", "busy"):
        pass
    assert names(lock.parent) == []


def test_lock_file_removed_by_its_holder_locks_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process opens the file, its holder removes it, and then the process gets the lock."""
    lock = tmp_path / ".lock"
    flock = fcntl.flock

    def remove_first(file: Any, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        lock.unlink()
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    with exclusive(lock, "place", "busy"):
        assert lock.exists()
        with pytest.raises(UserError, match="busy"):
            exclusive(lock, "place", "busy").__enter__()


def test_name_that_is_too_long_is_a_user_error(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 300)
    for check in (check_writable, check_folder, lambda path: write_atomically(path, b"")):
        with pytest.raises(UserError, match="File name too long"):
            check(path)
    with pytest.raises(UserError, match="File name too long"):
        exclusive(path / ".lock", "place", "busy").__enter__()


def test_remove_leftovers_removes_only_temporary_paths_of_a_name(tmp_path: Path) -> None:
    for name in (".a[1]~7.tmp", ".a1~7.tmp", ".a[1].b~7.tmp", ".a[1].7.partial", "a[1]"):
        (tmp_path / name).mkdir()
    remove_leftovers(tmp_path, "a[1]")
    assert names(tmp_path) == [".a1~7.tmp", ".a[1].7.partial", ".a[1].b~7.tmp", "a[1]"]
    remove_leftovers(tmp_path)
    assert names(tmp_path) == [".a[1].7.partial", "a[1]"]


def test_parse_json_raises_a_value_error_for_deep_nesting() -> None:
    with pytest.raises(ValueError, match="nested too deep"):
        parse_json(b"[" * 100_000)


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


# --- Lines of output ------------------------------------------------------------------------------


def test_lines_are_printed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8"))
    seen = []

    def lines() -> Iterator[str]:
        for line in ("one", "zwölf"):
            yield line
            seen.append(raw.getvalue().decode())

    write_lines(lines(), None)
    assert seen == ["one\n", "one\nzwölf\n"]


def test_lines_are_written_to_a_named_pipe() -> None:
    """Shells name pipes in `--output=>(gzip > lines.gz)` and `--output=/dev/stdout | cat`."""
    reader, writer = os.pipe()
    with os.fdopen(reader) as lines:
        with os.fdopen(writer, "w"):
            write_lines(["one", "two"], f"/dev/fd/{writer}")
        assert lines.read() == "one\ntwo\n"
    write_lines(["one"], "/dev/null")


def test_full_disk_is_reported_for_a_stream() -> None:
    with pytest.raises(UserError, match=r"^/dev/full: No space left on device$"):
        write_lines(["one"], "/dev/full")
