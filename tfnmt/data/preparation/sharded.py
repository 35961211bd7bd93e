"""Preparing a corpus in shards: the same files as in one process, with bounded memory.

    split        this process reads the corpus and writes shards of pairs
    rules        rules that look at one pair; a 128-bit hash of every pair that is left
    buckets      hashes of one range, over all shards: the first row of a pair is not a duplicate
    filter       duplicates and leakage; kept text, removed pairs and a report of each shard
    encode       ids of each shard, after this process has trained the tokenizer

Text and ids are written at their final offsets, which are sums over the shards in front. A worker
holds one shard, or one bucket of BUCKET_ROWS hashes, and the held-out pairs.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tfnmt.config import CleaningConfig, Config
from tfnmt.data.corpora.corpus import Corpus
from tfnmt.data.corpora.text_files import Pair
from tfnmt.data.preparation.clean_text import (
    clean_directions,
    held_out,
    new_report,
    rejected_line,
    rejected_writer,
    training_pairs,
    write_pairs,
)
from tfnmt.data.preparation.cleaning import Rule, make_rules, violated_rule
from tfnmt.data.preparation.encoding import (
    SIDES,
    Chunk,
    chunks_of,
    encode_chunk,
    ids_path,
    start_encoder,
    text_path,
)
from tfnmt.data.preparation.report import Report, parse_report
from tfnmt.data.preparation.storage import FlatWriter, open_text, splits_path
from tfnmt.data.preparation.tokenizer import Tokenizer
from tfnmt.progress import ProgressMeter
from tfnmt.runs.checkpoints import TOKENIZER
from tfnmt.runtime.executors import AnyTask, Executor, Process, Work
from tfnmt.runtime.files import atomic_folder, atomic_path, remove

HASHES = np.dtype([("high", np.uint64), ("low", np.uint64), ("row", np.uint64)])
"""The hash of a pair, and its row in the corpus."""

BUCKET_ROWS = 2**23
"""Hashes of a bucket on average. With the arrays to sort them, they take about 0.6 GB."""

BLOCK = 2**24
"""Bytes that are copied at once."""


class Shards(NamedTuple):
    """How to prepare a corpus in shards."""

    executor: Callable[[], AbstractContextManager[Executor]]
    pairs: int  # of each shard


@contextmanager
def open_preparation(folder: Path, shards: Shards) -> Iterator["Preparation"]:
    """Start the executor, and provide the steps of a preparation."""
    work = folder / ".shards"
    with shards.executor() as executor:
        yield Preparation(work, executor, shards.pairs)
    remove(work)


# --- Tasks ----------------------------------------------------------------------------------------


class PairShard(NamedTuple):
    """Consecutive pairs of a corpus, and the files that are made of them."""

    folder: Path  # of the direction
    number: int
    first_row: int
    rows: int

    @property
    def name(self) -> str:
        """The name for messages."""
        return f"pairs {self.first_row + 1:,}-{self.first_row + self.rows:,}"

    @property
    def raw(self) -> Path:
        """The pairs."""
        return self.folder / f"raw-{self.number:05d}"

    @property
    def ruled(self) -> Path:
        """A folder: the rule that each pair violates, and the sorted hashes of the others."""
        return self.folder / f"ruled-{self.number:05d}"

    @property
    def kept(self) -> Path:
        """A folder: the kept text, the removed pairs, and the report."""
        return self.folder / f"kept-{self.number:05d}"

    def pairs(self) -> list[Pair]:
        """Read the pairs."""
        return _read_pairs(self.raw)


class Bucket(NamedTuple):
    """A range of hashes."""

    folder: Path
    number: int
    buckets: int  # all of them

    @property
    def name(self) -> str:
        """The name for messages."""
        return f"bucket {self.number} of {self.buckets} of the hashes of pairs"

    @property
    def duplicates(self) -> Path:
        """The rows of duplicates, sorted."""
        return self.folder / f"duplicates-{self.number:05d}.npy"

    def range_in(self, hashes: np.ndarray) -> np.ndarray:
        """Return the hashes of this bucket, of those of a shard."""
        width = 2**64 // self.buckets + 1
        ends = [np.uint64(min(n * width, 2**64 - 1)) for n in (self.number, self.number + 1)]
        first, end = np.searchsorted(hashes["high"], ends)
        return hashes[first : None if self.number + 1 == self.buckets else end]


class EncodedChunk(NamedTuple):
    """Rows to encode, and the file of their ids."""

    chunk: Chunk
    ids: Path

    @property
    def name(self) -> str:
        """The name for messages."""
        return f"{self.chunk.side} rows {self.chunk.first + 1:,}-{self.chunk.end:,}"


class Placement(NamedTuple):
    """A file of sentences, and its place in a longer one."""

    part: Path
    whole: Path
    first_row: int
    rows: int
    first_item: int  # bytes of text, or ids
    item_size: int

    @property
    def name(self) -> str:
        """The name for messages."""
        return f"{self.whole.name}, rows {self.first_row + 1:,}-{self.first_row + self.rows:,}"


# --- Steps ----------------------------------------------------------------------------------------


class KeptShard(NamedTuple):
    """The size of the kept text of a shard."""

    rows: int
    bytes: tuple[int, int]  # of source and target


class Preparation:
    """The steps that are done in shards."""

    def __init__(self, work: Path, executor: Executor, shard_pairs: int) -> None:
        """Create a preparation.

        Args:
            work: A folder for the files of the shards.
            executor: Runs the tasks.
            shard_pairs: The pairs of a shard.
        """
        self._work = work
        self._executor = executor
        self._shard_pairs = shard_pairs

    def clean(
        self, folder: Path, config: Config, corpora: Mapping[str, Corpus]
    ) -> dict[str, Report]:
        """Write the pairs that violate no rule as text, and the others as rejected."""
        kept: list[tuple[Path, KeptShard]] = []
        clean_one = partial(self._clean_direction, kept=kept)
        reports = clean_directions(folder, config, corpora, clean_one)
        for number, side in enumerate(SIDES):
            parts = [
                (text_path(path, side), shard.rows, shard.bytes[number]) for path, shard in kept
            ]
            self._place(parts, text_path(folder, side), item_size=1)
        remove(self._work)
        return reports

    def encode(self, folder: Path, directions: Mapping[str, range]) -> dict[str, dict[str, int]]:
        """Write the ids of both sides; returns their number, by direction and side."""
        self._work.mkdir()
        chunks = [
            EncodedChunk(chunk, self._work / f"ids-{number:05d}" / "ids")
            for number, chunk in enumerate(chunks_of(directions, self._shard_pairs))
        ]
        ids = self._run(EncodeWork(folder), chunks, "encoding")
        tokens = {direction: dict.fromkeys(SIDES, 0) for direction in directions}
        for (chunk, _), count in zip(chunks, ids, strict=True):
            tokens[chunk.direction][chunk.side] += count
        item_size = np.dtype(Tokenizer((folder / TOKENIZER).read_bytes()).dtype).itemsize
        for side in SIDES:
            parts = [
                (each.ids, each.chunk.end - each.chunk.first, count)
                for each, count in zip(chunks, ids, strict=True)
                if each.chunk.side == side
            ]
            self._place(parts, ids_path(folder, side), item_size)
        return tokens

    def _clean_direction(
        self,
        folder: Path,
        config: Config,
        corpus: Corpus,
        kept: list[tuple[Path, KeptShard]],
    ) -> Report:
        work = self._work / f"{config.data.source}-{config.data.target}"
        work.mkdir(parents=True)
        shards = list(_split(work, training_pairs(config, corpus, self._shard_pairs)))
        _write_pairs(work / "held-out", held_out(config, corpus))
        hashes = self._run(RulesWork(config), shards, "cleaning")
        count = -(-sum(hashes) // BUCKET_ROWS) if config.cleaning.duplicates else 0
        buckets = [Bucket(work, number, count) for number in range(count)]
        self._run(BucketWork(shards), buckets, "finding duplicates")
        found = self._run(FilterWork(config, buckets, work / "held-out"), shards, "filtering")
        kept += zip((shard.kept for shard in shards), found, strict=True)
        report = new_report(config)
        with rejected_writer(folder) as rejected:
            for shard in shards:
                rejected.write((shard.kept / "rejected").read_bytes().decode())
                report.merge(parse_report(_read_text(shard.kept / "report")), _reader(shard))
        return report

    def _place(self, parts: list[tuple[Path, int, int]], whole: Path, item_size: int) -> None:
        """Join files of sentences.

        Args:
            parts: The path of each one, its rows, and its items.
            whole: The file to write.
            item_size: Bytes of an item.
        """
        rows = list(accumulate((rows for _, rows, _ in parts), initial=0))
        items = list(accumulate((items for _, _, items in parts), initial=0))
        _create(whole, rows[-1], items[-1] * item_size)
        placements = [
            Placement(part, whole, row, count, item, item_size)
            for (part, count, _), row, item in zip(parts, rows, items, strict=False)
        ]
        self._run(PlaceWork(), placements, f"writing {whole.name}")

    def _run(self, work: Work, tasks: Sequence[AnyTask], label: str) -> list[Any]:
        """Return the results of tasks in their order, while a progress bar is shown."""
        results: dict[AnyTask, Any] = {}
        with ProgressMeter(label, "shards", len(tasks)) as meter:
            for task, result in self._executor.run(work, tasks, _ignore):
                results[task] = result
                meter.add(1)
        return [results[task] for task in tasks]


def _ignore(units: int) -> None:
    """Ignore the progress inside a shard."""


def _split(folder: Path, groups: Iterable[list[Pair]]) -> Iterator[PairShard]:
    """Write pairs as shards."""
    first = 0
    for number, pairs in enumerate(groups):
        shard = PairShard(folder, number, first, len(pairs))
        _write_pairs(shard.raw, pairs)
        first += len(pairs)
        yield shard


def _write_pairs(path: Path, pairs: Iterable[Pair]) -> None:
    """Write pairs as JSON."""
    _write_text(path, json.dumps(list(pairs), ensure_ascii=False))


def _read_pairs(path: Path) -> list[Pair]:
    return [(source, target) for source, target in json.loads(_read_text(path))]


def _write_text(path: Path, text: str) -> None:
    # Unpaired surrogates stand for bytes that are not UTF-8, which a rule removes.
    path.write_text(text, encoding="utf-8", errors="surrogatepass")


def _read_text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="surrogatepass")


def _reader(shard: PairShard) -> Callable[[int], Pair]:
    """Return a function that reads a kept pair by its number."""

    def read(number: int) -> Pair:
        source, target = (open_text(text_path(shard.kept, side))[number] for side in SIDES)
        return source, target

    return read


def _create(path: Path, rows: int, size: int) -> None:
    """Create a file of sentences whose content is written later."""
    with path.open("wb") as file:
        file.truncate(size)
    np.lib.format.open_memmap(splits_path(path), "w+", np.int64, shape=(rows + 1,)).flush()


# --- Work -----------------------------------------------------------------------------------------


class RulesWork(NamedTuple):
    """Finds pairs that violate a rule about single pairs; the result is the number of others."""

    config: Config

    def load(self) -> Process:
        """Return the function for a shard."""
        return self._process

    def _process(self, shard: PairShard, attempt: int) -> Generator[int, None, int]:
        rules = _single_rules(self.config)
        names = [rule.name for rule in rules]
        pairs = shard.pairs()
        violated = [violated_rule(rules, pair) for pair in pairs]
        codes = [0 if name is None else 1 + names.index(name) for name in violated]
        left = [number for number, code in enumerate(codes) if code == 0]
        hashes = np.empty(len(left), HASHES)
        if self.config.cleaning.duplicates:
            digests = b"".join(_hash(pairs[number]) for number in left)
            hashes["high"], hashes["low"] = np.frombuffer(digests, "<u8").reshape(-1, 2).T
            hashes["row"] = shard.first_row + np.array(left, np.uint64)
            hashes = hashes[np.argsort(hashes["high"], kind="stable")]
        with atomic_folder(shard.ruled) as folder:
            np.save(folder / "rules.npy", np.array(codes, np.uint8))
            np.save(folder / "hashes.npy", hashes)
        yield len(pairs)
        return len(left)


def _single_rules(config: Config) -> list[Rule]:
    """Return the rules that need no other pairs."""
    cleaning: CleaningConfig = config.cleaning
    single = cleaning.model_copy(update={"duplicates": False, "leakage": False})
    return make_rules(single, (config.data.source, config.data.target), ())


def _hash(pair: Pair) -> bytes:
    """Return a 128-bit hash. The odds that any two of 10^9 pairs share one are 1 to 10^20."""
    source, target = (side.encode("utf-8", "surrogatepass") for side in pair)
    length = len(source).to_bytes(8, "little")
    return hashlib.blake2b(length + source + target, digest_size=16).digest()


class BucketWork(NamedTuple):
    """Finds the duplicates among the hashes of a bucket. The first row of a pair is none."""

    shards: list[PairShard]

    def load(self) -> Process:
        """Return the function for a bucket."""
        return self._process

    def _process(self, bucket: Bucket, attempt: int) -> Generator[int, None, None]:
        files = (np.load(shard.ruled / "hashes.npy", mmap_mode="r") for shard in self.shards)
        hashes = np.concatenate([bucket.range_in(each) for each in files])
        hashes = hashes[np.lexsort((hashes["row"], hashes["low"], hashes["high"]))]
        same = (hashes["high"][1:] == hashes["high"][:-1]) & (
            hashes["low"][1:] == hashes["low"][:-1]
        )
        with atomic_path(bucket.duplicates, str(attempt)) as path, path.open("wb") as file:
            np.save(file, np.sort(hashes["row"][1:][same]))
        yield len(hashes)


class FilterWork(NamedTuple):
    """Removes pairs and writes the others as text; the result is a KeptShard."""

    config: Config
    buckets: list[Bucket]
    held_out: Path

    def load(self) -> Process:
        """Load the held-out pairs."""
        return partial(self._process, set(_read_pairs(self.held_out)))

    def _process(
        self, leaked: set[Pair], shard: PairShard, attempt: int
    ) -> Generator[int, None, KeptShard]:
        names = [rule.name for rule in _single_rules(self.config)]
        codes = np.load(shard.ruled / "rules.npy").tolist()
        duplicates = self._duplicates(shard)
        report = new_report(self.config)
        kept: list[Pair] = []
        rejected: list[str] = []
        for row, pair in enumerate(shard.pairs(), start=shard.first_row):
            code = codes[row - shard.first_row]
            if code:
                rule = names[code - 1]
            elif row in duplicates:
                rule = "duplicates"
            elif pair in leaked:
                rule = "leakage"
            else:
                kept.append(pair)
                continue
            report.remove(rule, pair)
            rejected.append(rejected_line(rule, pair))
        report.read, report.kept = shard.rows, len(kept)
        report.source.add([source for source, _ in kept])
        report.target.add([target for _, target in kept])
        sizes = _write_kept(shard, kept, rejected, report)
        yield shard.rows
        return KeptShard(len(kept), sizes)

    def _duplicates(self, shard: PairShard) -> set[int]:
        """Return the rows of the shard that are duplicates."""
        rows: set[int] = set()
        limits = [np.uint64(shard.first_row), np.uint64(shard.first_row + shard.rows)]
        for bucket in self.buckets:
            found = np.load(bucket.duplicates, mmap_mode="r")
            first, end = np.searchsorted(found, limits)
            rows.update(found[first:end].tolist())
        return rows


def _write_kept(
    shard: PairShard, kept: list[Pair], rejected: list[str], report: Report
) -> tuple[int, int]:
    """Write the results of a shard; returns the bytes of both sides."""
    with atomic_folder(shard.kept) as folder:
        with (
            FlatWriter(text_path(folder, "source")) as source,
            FlatWriter(text_path(folder, "target")) as target,
        ):
            write_pairs((source, target), kept)
        text = "".join(rejected).encode("utf-8", "backslashreplace")
        (folder / "rejected").write_bytes(text)
        _write_text(folder / "report", report.json())
    source_size, target_size = (text_path(shard.kept, side).stat().st_size for side in SIDES)
    return source_size, target_size


class EncodeWork(NamedTuple):
    """Encodes rows; the result is the number of ids."""

    folder: Path

    def load(self) -> Process:
        """Load the tokenizer."""
        start_encoder(self.folder)
        return self._process

    def _process(self, task: EncodedChunk, attempt: int) -> Generator[int, None, int]:
        ids, lengths = encode_chunk(task.chunk)
        with atomic_folder(task.ids.parent) as folder, FlatWriter(folder / task.ids.name) as file:
            file.write(ids.tobytes(), lengths)
        yield len(lengths)
        return len(ids)


class PlaceWork(NamedTuple):
    """Copies files of sentences to their places. Another attempt writes the same bytes."""

    def load(self) -> Process:
        """Return the function for a file."""
        return self._process

    def _process(self, task: Placement, attempt: int) -> Generator[int, None, None]:
        with task.part.open("rb") as part, task.whole.open("r+b", buffering=0) as whole:
            whole.seek(task.first_item * task.item_size)
            shutil.copyfileobj(part, whole, BLOCK)
        ends = np.load(splits_path(task.part))[1:] + task.first_item
        splits = splits_path(task.whole)
        begin = np.load(splits, mmap_mode="r").offset + ends.itemsize * (task.first_row + 1)
        with splits.open("r+b", buffering=0) as file:
            os.pwrite(file.fileno(), ends.tobytes(), begin)
        yield task.rows
