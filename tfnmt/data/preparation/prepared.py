"""The prepared corpus: cleaned text, tokenizer and ids, written once and memory-mapped afterwards.

It is a folder named by the hash of everything it depends on:

    train.source.txt  train.target.txt      the pairs that were kept
    tokenizer.model                         trained on them
    train.source.ids  train.target.ids      their ids, concatenated, with EOS after every sentence
    *.splits.npy                            the start of each sentence
    report.json  .txt  .html                removed pairs by rule, lengths, samples
    rejected.tsv.gz                         every removed pair: rule, source, target
    checksums.json                          the checksums of text, tokenizer, ids and starts

Whenever a corpus is opened, its checksums and the size of its text are verified, and a damaged one
is prepared again. The checksums of the text are verified if training reads it, for BPE-dropout.
"""

import gzip
import hashlib
import json
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import TextIOWrapper
from itertools import islice
from multiprocessing import get_context, parent_process
from pathlib import Path
from random import Random
from threading import Thread
from typing import IO, Any, NamedTuple, TextIO

import numpy as np

from tfnmt.config import Config
from tfnmt.data.corpora.corpus import Corpus
from tfnmt.data.corpora.text_files import Pair
from tfnmt.data.preparation.cleaning import Rule, make_rules, violated_rule
from tfnmt.data.preparation.report import Report, Side
from tfnmt.data.preparation.storage import (
    FlatWriter,
    TextArray,
    TokenArray,
    open_text,
    open_tokens,
    splits_path,
)
from tfnmt.data.preparation.tokenizer import Tokenizer, train_tokenizer
from tfnmt.errors import UserError
from tfnmt.progress import log, progress_bar
from tfnmt.runs.checkpoints import CHECKSUMS, TOKENIZER, sha256
from tfnmt.runtime.files import atomic_folder, file_lock, parse_json, remove_leftovers
from tfnmt.runtime.startup import CPU_COUNT

FORMAT = 2
"""Version of the folder. Increase it when older folders must not be used any more."""

CHUNK = 20_000
"""Pairs that are processed together."""

TOKENIZER_PAIRS = 500_000
"""Maximum number of pairs that the tokenizer is trained on: a seeded sample."""

SAMPLE_SEED = 1
"""Fixed seed for sampling, so that the training seed does not change the tokenizer."""

SIDES = ("source", "target")


@dataclass(frozen=True)
class Prepared:
    """The training pairs as ids, each sentence with EOS, and as text."""

    folder: Path
    tokenizer: Tokenizer
    source: TokenArray
    target: TokenArray
    source_lines: TextArray
    target_lines: TextArray
    checksum: str = ""  # of tokenizer, ids and starts

    @property
    def identity(self) -> str:
        """Return name and checksum, by which a run recognizes its training data."""
        return f"{self.folder.name} {self.checksum}"

    @property
    def table(self) -> str:
        """Return the report as a readable table."""
        return (self.folder / "report.txt").read_text(encoding="utf-8")


def prepare(
    config: Config, corpus: Corpus, cache_dir: Path, tokenizer: bytes | None = None
) -> Prepared:
    """Return the prepared training split of a corpus, from the cache if possible.

    Args:
        config: Cleaning rules, tokenizer settings and the data section.
        corpus: The corpus.
        cache_dir: The folder that keeps prepared corpora.
        tokenizer: The content of a SentencePiece model file; None trains one on the text.

    Raises:
        UserError: The text cannot be read, no pair is left, or the disk is full.
    """
    folder = cache_dir / "prepared" / prepared_name(config, corpus, tokenizer)
    try:
        reads_text = config.data.bpe_dropout > 0
        with suppress(UserError):
            return open_prepared(folder, reads_text)
        lock = folder.with_name(f".{folder.name}.lock")
        with file_lock(lock, f"{folder}: another process is preparing this corpus"):
            if folder.is_dir():
                try:
                    return open_prepared(folder, reads_text)  # the other process wrote it
                except UserError as error:
                    log(f"{error}; preparing the corpus again")
            remove_leftovers(folder.parent, folder.name)
            with atomic_folder(folder) as temporary:
                _write(temporary, config, corpus, tokenizer)
            return open_prepared(folder)
    except OSError as error:
        raise UserError(
            f"{folder}: {error.strerror or error}; choose another folder with --cache_dir"
        ) from error


def open_prepared(folder: Path, reads_text: bool = False) -> Prepared:
    """Open a prepared corpus, memory-mapped, and verify it.

    Args:
        folder: The prepared corpus.
        reads_text: Whether to verify the checksums of the text as well.

    Raises:
        UserError: A file is missing or damaged.
    """
    checksum = _verify(folder, _id_files(folder))
    if reads_text:
        _verify(folder, _text_files(folder))
    tokenizer = Tokenizer((folder / TOKENIZER).read_bytes())
    try:
        return Prepared(
            folder,
            tokenizer,
            source=open_tokens(_ids_path(folder, "source"), tokenizer.dtype),
            target=open_tokens(_ids_path(folder, "target"), tokenizer.dtype),
            source_lines=open_text(_text_path(folder, "source")),
            target_lines=open_text(_text_path(folder, "target")),
            checksum=checksum,
        )
    except ValueError as error:
        raise UserError(str(error)) from error


def _verify(folder: Path, paths: list[Path]) -> str:
    """Compare files with their checksums; returns a checksum of them all.

    Earlier versions recorded no checksums.
    """
    try:
        found = _checksums(paths)
        recorded = parse_json((folder / CHECKSUMS).read_bytes())
    except FileNotFoundError as error:
        if Path(error.filename).name != CHECKSUMS:
            raise UserError(f"{error.filename}: missing") from error
        recorded = found
    except OSError as error:
        raise UserError(f"{error.filename}: {error.strerror}") from error
    except ValueError:
        recorded = None
    if not isinstance(recorded, dict):
        raise UserError(f"{folder / CHECKSUMS}: damaged")
    for name, checksum in found.items():
        if recorded.get(name) != checksum:
            raise UserError(f"{folder / name}: damaged")
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()


def _checksums(paths: list[Path]) -> dict[str, str]:
    """Return the checksums of files by name."""
    with ThreadPoolExecutor(CPU_COUNT) as pool:
        checksums = pool.map(sha256, paths)
    return {path.name: checksum for path, checksum in zip(paths, checksums, strict=True)}


def _write(folder: Path, config: Config, corpus: Corpus, tokenizer: bytes | None) -> None:
    report = _clean(folder, config, corpus)
    if report.kept == 0:
        raise UserError(
            f"data.train: cleaning removed all {report.read:,} training pairs "
            f"({_removals(report) or 'there is no text'}); check the text and the section cleaning"
        )
    if report.kept < report.read:
        log(f"{report.kept:,} of {report.read:,} pairs kept; removed: {_removals(report)}")
    model = tokenizer or _train_tokenizer(folder, config)
    (folder / TOKENIZER).write_bytes(model)
    report.tokens = _encode(folder)
    report.write(folder)
    checksums = _checksums([*_id_files(folder), *_text_files(folder)])
    (folder / CHECKSUMS).write_text(json.dumps(checksums, indent=1) + "\n")


# --- Cleaning -------------------------------------------------------------------------------------


def _clean(folder: Path, config: Config, corpus: Corpus) -> Report:
    """Write the pairs that violate no rule as text, and the others as rejected."""
    data = config.data
    rules = make_rules(config.cleaning, (data.source, data.target), _held_out(config, corpus))
    report = Report(data.corpus or "custom data", Side(data.source), Side(data.target))
    report.removed = {rule.name: 0 for rule in rules}
    errors = "surrogateescape" if config.cleaning.broken else "strict"
    text = islice(corpus.pairs("train", errors), data.max_pairs)
    pairs = progress_bar(text, "reading", "pairs", data.max_pairs)
    with (
        FlatWriter(_text_path(folder, "source")) as source,
        FlatWriter(_text_path(folder, "target")) as target,
        _gzip_writer(folder / "rejected.tsv.gz") as rejected,
    ):
        while chunk := list(islice(pairs, CHUNK)):
            kept = list(_filter(chunk, rules, report, rejected))
            report.keep(kept)
            _write_lines(source, [pair[0] for pair in kept])
            _write_lines(target, [pair[1] for pair in kept])
    return report


def _held_out(config: Config, corpus: Corpus) -> set[Pair]:
    """Return the pairs of the held-out splits, if the leakage rule is enabled."""
    if not config.cleaning.leakage:
        return set()
    return {pair for split in corpus.held_out for pair in corpus.pairs(split)}


def _filter(
    pairs: Iterable[Pair], rules: list[Rule], report: Report, rejected: IO[str]
) -> Iterator[Pair]:
    """Yield the pairs that violate no rule. Count and record the others."""
    for pair in pairs:
        report.read += 1
        rule = violated_rule(rules, pair)
        if rule is None:
            yield pair
        else:
            report.remove(rule, pair)
            rejected.write("\t".join((rule, *(side.replace("\t", " ") for side in pair))) + "\n")


def _gzip_writer(path: Path) -> TextIO:
    """Open a compressed text file without a date, so that the same text gives the same file."""
    compressed = gzip.GzipFile(path, "wb", compresslevel=6, mtime=0)
    return TextIOWrapper(compressed, encoding="utf-8", errors="backslashreplace")


def _write_lines(writer: FlatWriter, lines: list[str]) -> None:
    try:
        encoded = [f"{line}\n".encode() for line in lines]
    except UnicodeEncodeError as error:  # JSON can contain unpaired surrogates
        raise UserError(
            f"data.train: {error.object[:60]!r} contains an unpaired surrogate; fix it, or remove "
            "such pairs with --set cleaning.broken=true"
        ) from error
    writer.write(b"".join(encoded), map(len, encoded))


def _removals(report: Report) -> str:
    return ", ".join(f"{count:,} {rule}" for rule, count in report.removed.items() if count)


# --- Tokenizer and ids ----------------------------------------------------------------------------


def _train_tokenizer(folder: Path, config: Config) -> bytes:
    """Train the SentencePiece model on the text or a sample of it."""
    source, target = (open_text(_text_path(folder, side)) for side in SIDES)
    rows: Sequence[int] = range(len(source))
    if len(source) > TOKENIZER_PAIRS:
        rows = sorted(Random(SAMPLE_SEED).sample(rows, TOKENIZER_PAIRS))
    log(
        f"training a tokenizer with {config.tokenizer.vocab_size:,} tokens on "
        f"{min(len(source), TOKENIZER_PAIRS):,} pairs"
    )
    lines = (text[row] for row in rows for text in (source, target))
    return train_tokenizer(lines, config.tokenizer)


class Chunk(NamedTuple):
    """Rows that are encoded together."""

    side: str
    first: int
    end: int


def _encode(folder: Path) -> dict[str, int]:
    """Write the ids of both sides, using all cores; returns the number of ids of each side."""
    rows = len(open_text(_text_path(folder, "source")))
    starts = range(0, rows, CHUNK)
    chunks = [Chunk(side, start, min(start + CHUNK, rows)) for side in SIDES for start in starts]
    tokens = dict.fromkeys(SIDES, 0)
    with (
        _encoders(folder, len(chunks)) as mapped,
        FlatWriter(_ids_path(folder, "source")) as source,
        FlatWriter(_ids_path(folder, "target")) as target,
    ):
        writers = dict(zip(SIDES, (source, target), strict=True))
        results = mapped(_encode_chunk, chunks)
        encoded = progress_bar(results, "encoding", "pairs", len(chunks), CHUNK)
        for chunk, (ids, lengths) in zip(chunks, encoded, strict=True):
            writers[chunk.side].write(ids.tobytes(), lengths)
            tokens[chunk.side] += len(ids)
    return tokens


class _Encoder:
    """State of an encoding process."""

    tokenizer: Tokenizer
    lines: dict[str, TextArray]


def _start_encoder(folder: Path) -> None:
    _Encoder.tokenizer = Tokenizer((folder / TOKENIZER).read_bytes())
    _Encoder.lines = {side: open_text(_text_path(folder, side)) for side in SIDES}


def _start_worker(folder: Path) -> None:
    """Start an encoder in a worker process."""
    Thread(target=_exit_with_parent, daemon=True).start()
    _start_encoder(folder)


def _exit_with_parent() -> None:
    """Exit when the parent process ends, even if it is killed."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _encode_chunk(chunk: Chunk) -> tuple[np.ndarray, np.ndarray]:
    """Return the concatenated ids of some rows, and the number of ids of each row."""
    lines = _Encoder.lines[chunk.side].between(chunk.first, chunk.end)
    return _Encoder.tokenizer.encode_flat(lines)


@contextmanager
def _encoders(folder: Path, chunks: int) -> Iterator[Callable[..., Iterable[Any]]]:
    """Provide a `map` over one process per CPU, or in this process if there is little to do."""
    if chunks <= len(SIDES):
        _start_encoder(folder)
        yield map
        return
    workers = min(CPU_COUNT, chunks)
    # Spawned, not forked, because the caller may have threads, for example of TensorFlow.
    with ProcessPoolExecutor(workers, get_context("spawn"), _start_worker, (folder,)) as pool:

        def mapped(function: Callable[[Chunk], Any], rows: Iterable[Chunk]) -> Iterable[Any]:
            with _interrupts_blocked():
                return pool.map(function, rows)

        yield mapped


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Delay Ctrl-C. Processes that start in the meantime inherit it and never receive Ctrl-C.

    Otherwise each of them would print a traceback. They end with this process.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


# --- Names ----------------------------------------------------------------------------------------


def _text_path(folder: Path, side: str) -> Path:
    return folder / f"train.{side}.txt"


def _ids_path(folder: Path, side: str) -> Path:
    return folder / f"train.{side}.ids"


def _text_files(folder: Path) -> list[Path]:
    return [_text_path(folder, side) for side in SIDES]


def _id_files(folder: Path) -> list[Path]:
    """Return the files that training always reads."""
    ids = [_ids_path(folder, side) for side in SIDES]
    return [folder / TOKENIZER, *ids, *map(splits_path, [*ids, *_text_files(folder)])]


def prepared_name(config: Config, corpus: Corpus, tokenizer: bytes | None) -> str:
    """Return the name of a prepared corpus: a hash of everything that its ids depend on."""
    data = config.data
    held_out = corpus.held_out if config.cleaning.leakage else ()
    depends_on = {
        "format": FORMAT,
        "cleaning": config.cleaning.model_dump(),
        "tokenizer": config.tokenizer.model_dump(exclude={"from_run"}),
        # The content identifies the run that it is from.
        "given_tokenizer": hashlib.sha256(tokenizer or b"").hexdigest(),
        "corpus": data.corpus,
        "direction": [data.source, data.target],
        "max_pairs": data.max_pairs,
        # Without validation files, the seed selects the rows held out for validation.
        "held_out": ["both sides", config.training.seed] if data.train and not data.val else None,
        "files": {split: corpus.fingerprint(split) for split in ("train", *held_out)},
    }
    return hashlib.sha256(json.dumps(depends_on, sort_keys=True).encode()).hexdigest()[:16]
