"""Processing the lines of a file, or of a folder of files, in shards."""

import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from itertools import chain, compress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tfnmt.data.corpora.text_files import check_readable, decompressed_name, open_bytes
from tfnmt.errors import UsageError
from tfnmt.progress import ProgressMeter, log
from tfnmt.runtime.executors import Executor, Work
from tfnmt.runtime.files import atomic_path, check_output_files, exclusive, is_stream
from tfnmt.runtime.shards import BLOCK, ResumableParts, Shard, index_lines


class FilePair(NamedTuple):
    """An input and its output."""

    source: Path
    output: Path


class ShardSettings(NamedTuple):
    """The flags of a command, and the label of its progress bar."""

    shard_lines: int
    resume: bool
    label: str


class Notes(Protocol):
    """Notes about the lines of a file: the result of a shard."""

    def merge(self, other: Any) -> None:
        """Add the notes about other lines."""

    def close(self, place: str = "") -> None:
        """Report the notes."""


def find_files(source: str | None, output: str | None) -> list[FilePair]:
    """Return the files to process: one, or the files of a folder by name.

    Args:
        source: The value of --input.
        output: The value of --output: a folder if the input is one.

    Raises:
        UsageError: A value is missing, or a stream; or two outputs would be the same file.
    """
    given = {"--input": source, "--output": output}
    problems = [
        f"{flag}: missing; shards need --input and --output"
        for flag, name in given.items()
        if not name
    ]
    problems += [
        f"{flag}={name}: a stream, which has no shards; name a file"
        for flag, name in given.items()
        if name and is_stream(Path(name))
    ]
    if problems or not (source and output):
        raise UsageError(*problems)
    path, target = Path(source), Path(output)
    if not path.is_dir():
        return [FilePair(path, target)]
    files = sorted(each for each in path.iterdir() if each.is_file() and each.name[0] != ".")
    if not files:
        raise UsageError(f"--input={source}: no files in this folder; name another one")
    pairs = [FilePair(each, target / decompressed_name(each).name) for each in files]
    return _check_distinct(pairs)


def _check_distinct(pairs: list[FilePair]) -> list[FilePair]:
    sources: dict[Path, Path] = {}
    for source, output in pairs:
        other = sources.setdefault(output, source)
        if other != source:
            raise UsageError(f"{source}: has the same output as {other}; rename one of them")
    return pairs


def check_files(pairs: list[FilePair], model_files: Iterable[Path]) -> None:
    """Raise a UserError if a file cannot be read or written, or is the file of another flag."""
    for source, _ in pairs:
        check_readable(source)
    inputs = {"--model": model_files, "--input": [source for source, _ in pairs]}
    check_output_files([("--output", str(output)) for _, output in pairs], inputs)


def process_files(
    pairs: list[FilePair],
    jobs: list[dict[str, Any]],
    work: Work,
    executor: AbstractContextManager[Executor],
    settings: ShardSettings,
) -> None:
    """Process files in shards; the parts of an interrupted command are kept.

    Args:
        pairs: The files.
        jobs: Everything that decides each output.
        work: Processes a shard; the results are notes.
        executor: The executor, which is started if a shard is left.
        settings: The flags.

    Raises:
        UserError: An output belongs to another job, or a shard failed.
    """
    with _folder_lock(pairs):
        files = [_File(pair, job) for pair, job in zip(pairs, jobs, strict=True)]
        files = [file for file in files if file.begin(settings.resume)]
        try:
            _process(files, work, executor, settings)
        except BaseException:
            if any(file.has_parts() for file in files):
                log("finished parts are kept; continue with --resume")
            raise


def _folder_lock(pairs: list[FilePair]) -> AbstractContextManager[None]:
    """Exclude other commands with the same folder of outputs."""
    if len(pairs) == 1:
        return nullcontext()  # its own lock is enough
    folder = pairs[0].output.parent
    problem = "another process is writing this folder; wait until it has finished"
    return exclusive(folder / ".lock", str(folder), problem)


def _process(
    files: list["_File"],
    work: Work,
    executor: AbstractContextManager[Executor],
    settings: ShardSettings,
) -> None:
    with closing(_OpenFiles(files, settings.shard_lines)) as opened:
        shards = opened.shards()
        first = next(shards, None)
        if first is None:
            return
        total = opened.lines_left if len(files) == 1 else None  # the others are not yet read
        with executor as started, ProgressMeter(settings.label, "lines", total) as meter:
            begin, lines = time.monotonic(), 0
            for shard, notes in started.run(work, chain([first], shards), meter.add):
                lines += shard.lines
                opened.add(shard, notes)
            seconds = time.monotonic() - begin
            workers = f"{started.workers} workers" if started.workers > 1 else "1 worker"
    log(f"{lines:,} lines in {seconds:,.1f} s: {lines / seconds:,.1f} lines/s, {workers}")


class _File(NamedTuple):
    """A file to process."""

    pair: FilePair
    job: dict[str, Any]

    @property
    def parts(self) -> ResumableParts:
        """The output."""
        return ResumableParts(self.pair.output)

    def begin(self, resume: bool) -> bool:
        """Discard or check the earlier output; return whether work is left."""
        parts = self.parts
        if resume and parts.finished:
            parts.check_job(self.job)
            log(f"{parts.path}: already finished; run without --resume to overwrite it")
            return False
        with parts.locked():
            done = parts.resume(self.job) if resume else parts.start(self.job)
        if done:
            log(f"{parts.path}: resuming with {done:,} finished parts")
        return True

    def has_parts(self) -> bool:
        """Return whether there are finished parts."""
        return any(self.parts.partial.glob("part-*"))


class _OpenFiles:
    """The files in progress: few at once, because each is opened for its first shard."""

    def __init__(self, files: list[_File], shard_lines: int) -> None:
        self._files = files
        self._shard_lines = shard_lines
        self._opened: dict[Path, _OpenFile] = {}  # by input

    @property
    def lines_left(self) -> int:
        """The lines of the open files that were left when they were opened."""
        return sum(file.lines_left for file in self._opened.values())

    def shards(self) -> Iterator[Shard]:
        """Yield the shards without a finished part."""
        for each in self._files:
            file = self._opened[each.pair.source] = _OpenFile(each)
            file.find_shards(self._shard_lines)
            if file.shards_left:
                yield from file.left()
            else:
                self._finish(each.pair.source)

    def add(self, shard: Shard, notes: Notes) -> None:
        """Add the notes about a shard that was just finished."""
        file = self._opened[shard.origin]
        file.add(notes)
        if not file.shards_left:
            self._finish(shard.origin)

    def close(self) -> None:
        """Release the locks of the files that were not finished."""
        for file in self._opened.values():
            file.close()

    def _finish(self, source: Path) -> None:
        file = self._opened[source]
        file.finish(f"{source}: " if len(self._files) > 1 else "")
        file.close()
        del self._opened[source]


class _OpenFile:
    """A file in progress: its lock, its shards, its finished parts, and the notes about them."""

    def __init__(self, file: _File) -> None:
        self._source = file.pair.source
        self._parts = file.parts
        self._job = file.job
        self._notes: Notes | None = None
        self._lock = self._parts.locked()

    def find_shards(self, shard_lines: int) -> None:
        """Find the shards that are left."""
        self._parts.check_job(self._job)  # another command may have started the file
        self._text = self._decompressed()
        self._index = index_lines(self._text, shard_lines)
        self._finished = self._parts.finished_parts(len(self._index))
        self.shards_left = len(self._index) - int(self._finished.sum())

    @property
    def lines_left(self) -> int:
        """The lines of the shards that are left when the file is opened."""
        finished = int(self._finished.sum()) * self._index.shard_lines
        if len(self._finished) and self._finished[-1]:  # the last shard may be shorter
            finished += self._index.lines - len(self._index) * self._index.shard_lines
        return self._index.lines - finished

    def left(self) -> Iterator[Shard]:
        """Yield the shards without a finished part."""
        shards = self._index.shards(self._source, self._text, self._parts)
        return compress(shards, ~self._finished)

    def add(self, notes: Notes) -> None:
        """Add the notes about a shard that was just finished."""
        self.shards_left -= 1
        if self._notes is None:
            self._notes = notes
        else:
            self._notes.merge(notes)

    def finish(self, place: str) -> None:
        """Join the parts, and report the notes.

        Args:
            place: The text in front of the notes.
        """
        self._parts.join(len(self._index))
        if self._notes is not None:
            self._notes.close(place)

    def close(self) -> None:
        """Release the lock."""
        self._lock.close()

    def _decompressed(self) -> Path:
        """Return the text, decompressed once into the folder of the parts."""
        source = self._source
        if decompressed_name(source) == source:
            return source
        text = self._parts.partial / "text"
        if not text.exists():
            with (
                open_bytes(source) as file,
                atomic_path(text) as temporary,
                temporary.open("wb") as written,
            ):
                shutil.copyfileobj(file, written, BLOCK)
        return text
