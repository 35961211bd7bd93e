"""Shards of a file, and the parts that are written for them."""

import errno
import os
import shutil
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.tfnmt.runtime.toy_work import Uppercase, joined, make_shards, text
from tfnmt.errors import UsageError, UserError
from tfnmt.runtime import shards as module
from tfnmt.runtime.executors import FAILED_TASKS, Failed, LocalExecutor, attempt_task
from tfnmt.runtime.resumable_file import ResumableFile
from tfnmt.runtime.shards import ResumableParts, index_lines, write_part


@pytest.mark.parametrize("block", [1, 3, 7, 2**20])
@pytest.mark.parametrize("shard_lines", [1, 2, 3, 100])
@pytest.mark.parametrize("content", ["", "a", "a\n", "\n\n\n", "a\nbb\n\nccc\r\nd\u2028e\nlast"])
def test_shards_contain_each_line_once(
    content: str, shard_lines: int, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BLOCK", block)
    path = tmp_path / "in"
    path.write_bytes(content.encode())
    index = index_lines(path, shard_lines)
    shards = list(index.shards(path, path, ResumableParts(tmp_path / "out")))
    lines = content.encode().splitlines(keepends=True) if "\r" not in content else None
    read = [line for shard in shards for line in shard.read()]
    assert b"".join(read) == content.encode()
    assert index.lines == len(read)
    assert lines is None or lines == read
    assert [shard.lines for shard in shards] == [len(list(shard.read())) for shard in shards]
    assert all(shard.lines == shard_lines for shard in shards[:-1])
    assert [shard.first_line for shard in shards] == list(range(0, len(read), shard_lines))


def test_part_with_another_number_of_lines_does_not_appear(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="2 lines instead of 3, because the input changed"):
        list(write_part(tmp_path / "part", 1, ["a", "b"], 3))
    assert list(tmp_path.iterdir()) == []


def test_two_attempts_at_a_part_leave_one_whole_file(tmp_path: Path) -> None:
    path, seen = tmp_path / "part", []

    def other_attempt() -> list[str]:
        seen.extend(each.name for each in tmp_path.iterdir())
        list(write_part(path, 2, ["a", "b"]))  # finishes in the middle of the first one
        return ["b"]

    lines = (line for make in (lambda: ["a"], other_attempt) for line in make())
    list(write_part(path, 1, lines))
    assert path.read_text() == "a\nb\n"
    assert list(tmp_path.iterdir()) == [path]
    assert len(seen) == 1
    assert seen[0].endswith(".1.tmp")


def test_local_executor_retries_and_writes_every_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = text("once boom")
    shards = make_shards(tmp_path, content)
    reported: list[int] = []
    results = list(LocalExecutor().run(Uppercase(tmp_path), shards, reported.append))
    assert [shard for shard, _ in results] == shards
    assert joined(tmp_path, shards) == content.upper()
    assert sum(reported) == 200
    assert (
        "shard 00006 (lines 97-112): attempt 1 failed (ValueError: boom" in capsys.readouterr().err
    )


def test_shard_that_always_fails_is_named_and_the_others_are_kept(tmp_path: Path) -> None:
    shards = make_shards(tmp_path, text("always boom", "always refuse"))
    with pytest.raises(UserError) as raised:
        list(LocalExecutor().run(Uppercase(tmp_path), shards, lambda units: None))
    boom, refused = raised.value.problems
    assert "shard 00004 (lines 65-80): failed 3 times, at last because of ValueError: boom" in boom
    assert refused == "the line: refused; omit it"
    missing = [shard.number for shard in shards if not shard.part.exists()]
    assert missing == [4, 8]


@pytest.mark.parametrize(("code", "final"), [(errno.ESTALE, False), (errno.ENOSPC, True)])
def test_attempt_is_final_if_the_error_of_the_file_system_lasts(
    code: int, final: bool, tmp_path: Path
) -> None:
    def lines() -> Iterator[str]:
        yield "a"
        raise OSError(code, os.strerror(code))

    def process(path: Path, attempt: int) -> Generator[int, None, int]:
        return (yield from write_part(path, attempt, lines()))

    (failed,) = attempt_task(process, tmp_path / "part", 1)
    assert isinstance(failed, Failed)
    assert failed.final == final
    assert not list(tmp_path.iterdir())


def test_input_that_cannot_be_read_is_tried_again_and_named(tmp_path: Path) -> None:
    (shard,) = make_shards(tmp_path, "a\n")
    shard.source.unlink()
    with pytest.raises(UserError) as raised:
        list(LocalExecutor().run(Uppercase(tmp_path), [shard], lambda units: None))
    reason = f"failed 3 times, at last because of {shard.origin}: No such file or directory; remove"
    assert reason in str(raised.value)


def test_no_shard_is_started_after_several_failures(tmp_path: Path) -> None:
    shards = make_shards(tmp_path, "always refuse\n" * 200)
    with pytest.raises(UserError) as raised:
        list(LocalExecutor().run(Uppercase(tmp_path), shards, lambda units: None))
    assert len(raised.value.problems) == FAILED_TASKS


def test_parts_resume_with_the_same_job_only(tmp_path: Path) -> None:
    job = {"--shard_lines": 2}
    parts = ResumableParts(tmp_path / "out")
    assert parts.resume(job) == 0
    list(write_part(parts.part(1), 1, ["c"]))
    left = parts.partial / ".part-00000~host.7.1.tmp"
    left.touch()
    assert parts.resume(job) == 1
    assert not left.exists()
    assert parts.finished_parts(3).tolist() == [False, True, False]
    with pytest.raises(UsageError, match="was made with a different --shard_lines"):
        parts.resume({"--shard_lines": 3})
    with pytest.raises(UsageError, match="was made with a different --shard_lines"):
        ResumableFile(tmp_path / "out").resume({"--shard_lines": None})
    list(write_part(parts.part(0), 1, ["a", "b"]))
    parts.join(2)
    assert parts.finished
    assert parts.path.read_text() == "a\nb\nc\n"


def test_output_is_finished_if_the_command_ends_while_parts_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(path: Path) -> None:
        raise KeyboardInterrupt

    parts = ResumableParts(tmp_path / "out")
    parts.start({})
    list(write_part(parts.part(0), 1, ["a"]))
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", interrupt)
        with pytest.raises(KeyboardInterrupt):
            parts.join(1)
    assert parts.finished
    assert parts.path.read_text() == "a\n"
    parts.start({})
    assert {path.name for path in tmp_path.iterdir()} == {"out", ".out.job", ".out.partial"}


def test_a_stream_of_lines_starts_over_where_parts_were(tmp_path: Path) -> None:
    parts = ResumableParts(tmp_path / "out")
    parts.start({})
    list(write_part(parts.part(0), 1, ["a"]))
    file = ResumableFile(tmp_path / "out")
    file.start({})
    file.write(["b"])
    assert file.path.read_text() == "b\n"
    assert not parts.partial.exists()
