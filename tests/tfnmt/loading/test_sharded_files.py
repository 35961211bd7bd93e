"""Files and folders that are processed in shards by the local executor."""

import gzip
import os
import resource
from collections.abc import Generator
from contextlib import nullcontext
from pathlib import Path

import pytest

from tfnmt.errors import UsageError, UserError
from tfnmt.loading.sharded_files import (
    FilePair,
    ShardSettings,
    check_files,
    find_files,
    process_files,
)
from tfnmt.progress import ReplacementNotes
from tfnmt.runtime.executors import LocalExecutor, Process
from tfnmt.runtime.files import exclusive
from tfnmt.runtime.shards import Shard, write_part


class Uppercase:
    """Uppercases lines, and notes those with U+FFFD. Refuses lines with `stop`."""

    def __init__(self) -> None:
        self.processed: list[int] = []

    def load(self) -> Process:
        return self._process

    def _process(self, shard: Shard, attempt: int) -> Generator[int, None, ReplacementNotes]:
        self.processed.append(shard.number)
        notes = ReplacementNotes()
        lines = (line.decode().rstrip("\n") for line in shard.read())
        checked = list(notes.check(lines, shard.first_line + 1))
        if "stop" in checked:
            raise UserError(f"{shard.origin}: stop; omit it")
        yield from write_part(shard.part, attempt, map(str.upper, checked), shard.lines)
        return notes


def run(source: Path, output: Path, work: Uppercase, resume: bool = False) -> None:
    pairs = find_files(str(source), str(output))
    check_files(pairs, [])
    jobs = [{"input": str(pair.source)} for pair in pairs]
    settings = ShardSettings(2, resume, "testing")
    process_files(pairs, jobs, work, nullcontext(LocalExecutor()), settings)


@pytest.mark.parametrize("content", ["", "a\nb\n", "a\n\ufffd\nb\nc\n\ufffd"])
@pytest.mark.parametrize("name", ["in", "in.gz"])
def test_output_has_a_line_for_each_line(
    content: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, output = tmp_path / name, tmp_path / "out"
    source.write_bytes(gzip.compress(content.encode()) if name == "in.gz" else content.encode())
    run(source, output, Uppercase())
    assert output.read_text() == "".join(f"{line.upper()}\n" for line in content.splitlines())
    printed = capsys.readouterr().err
    assert ("line 2, 5: contains U+FFFD" in printed) == ("\ufffd" in content)
    assert {path.name for path in tmp_path.iterdir()} == {name, "out", ".out.job"}


def test_files_of_a_folder_give_files_of_the_same_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, output = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    (source / "one").write_text("a\n\ufffd\n")
    (source / "two.gz").write_bytes(gzip.compress(b"b\nc\nd\n"))
    (source / ".hidden").touch()
    run(source, output, Uppercase())
    found = {path.name: path.read_text() for path in output.glob("[!.]*")}
    assert found == {"one": "A\n\ufffd\n", "two": "B\nC\nD\n"}
    assert f"tfnmt: {source / 'one'}: line 2: contains U+FFFD" in capsys.readouterr().err

    work = Uppercase()
    (output / "two").unlink()
    run(source, output, work, resume=True)
    assert work.processed == [0, 1]  # only the shards of the missing file
    assert (output / "two").read_text() == "B\nC\nD\n"


def test_folder_has_more_files_than_can_be_open(tmp_path: Path) -> None:
    source, output = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    for number in range(40):
        (source / f"{number:02d}").write_text("a\n")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(map(int, os.listdir("/proc/self/fd"))) + 20
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, limits[1]))
    try:
        run(source, output, Uppercase())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert "".join(path.read_text() for path in output.glob("[!.]*")) == "A\n" * 40


def test_files_of_a_folder_are_decompressed_one_after_another(tmp_path: Path) -> None:
    source, output = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    (source / "a.gz").write_bytes(gzip.compress(b"a\n"))
    (source / "b.gz").write_bytes(gzip.compress(b"b\n")[:-4])
    with pytest.raises(UserError, match=r"b\.gz"):
        run(source, output, Uppercase())
    assert (output / "a").read_text() == "A\n"


def test_files_of_the_model_are_listed_once_for_all_outputs(tmp_path: Path) -> None:
    for name in ("in", "one", "two"):
        (tmp_path / name).touch()
    pairs = [FilePair(tmp_path / "in", tmp_path / name) for name in ("one", "two")]
    with pytest.raises(UsageError, match=r"two: is read by --model"):
        check_files(pairs, iter([tmp_path / "two"]))


def test_another_command_with_the_same_folder_of_outputs_is_refused(tmp_path: Path) -> None:
    source, output = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    for name in ("a", "b"):
        (source / name).write_text("a\n")
    problem = "another process is writing this folder"
    with exclusive(output / ".lock", "", ""), pytest.raises(UserError, match=problem):
        run(source, output, Uppercase())
    run(source, output, Uppercase())
    assert not (output / ".lock").exists()


def test_failed_shard_is_the_only_one_of_the_next_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, output = tmp_path / "in", tmp_path / "out"
    source.write_text("a\nb\nstop\nd\ne\n")
    with pytest.raises(UserError, match="stop; omit it"):
        run(source, output, Uppercase())
    assert "finished parts are kept; continue with --resume" in capsys.readouterr().err
    assert not output.exists()
    source.write_text("a\nb\ngo\nd\ne\n")
    work = Uppercase()
    run(source, output, work, resume=True)
    assert work.processed == [1]
    assert output.read_text() == "A\nB\nGO\nD\nE\n"


def test_streams_missing_flags_and_equal_outputs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--input: missing; shards need --input and --output"):
        find_files(None, str(tmp_path / "out"))
    with pytest.raises(UsageError, match="--output=/dev/null: a stream"):
        find_files(str(tmp_path), "/dev/null")
    with pytest.raises(UsageError, match="no files in this folder"):
        find_files(str(tmp_path), str(tmp_path / "out"))
    for name in ("a", "a.gz"):
        (tmp_path / name).touch()
    with pytest.raises(UsageError, match=r"a\.gz: has the same output as"):
        find_files(str(tmp_path), str(tmp_path / "out"))
    os.remove(tmp_path / "a.gz")
    with pytest.raises(UsageError, match="is read by --input"):
        check_files(find_files(str(tmp_path), str(tmp_path)), [])
