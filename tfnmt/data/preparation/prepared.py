"""A corpus on disk: cleaned text, tokenizer and ids, made once and memory-mapped afterwards.

A prepared corpus is a folder named by the hash of all it depends on:

    train.source.txt  train.target.txt      the pairs that were kept
    tokenizer.model                         learnt from them
    train.source.ids  train.target.ids      their ids, end to end, an eos after every sentence
    *.splits.npy                            where each sentence begins
    report.json  .txt  .html                what cleaning removed, lengths, samples
    rejected.tsv.gz                         every pair removed: rule, source, target
"""

import gzip
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
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
from tfnmt.data.preparation.cleaning import Rule, broken_rule, make_rules
from tfnmt.data.preparation.report import Report, Side
from tfnmt.data.preparation.storage import FlatWriter, Lines, Sentences, open_lines, open_sentences
from tfnmt.data.preparation.tokenizer import Tokenizer, train_tokenizer
from tfnmt.errors import UserError
from tfnmt.progress import bar, say
from tfnmt.runtime.files import ASIDE, exclusive, written_aside
from tfnmt.runtime.startup import PROCESSORS

FORMAT = 2
"""Raised whenever prepared folders of older versions must not be used any more."""

CHUNK = 20_000
"""Pairs that are worked on at once."""

TOKENIZER_PAIRS = 500_000
"""Pairs that the tokenizer learns from, at most: a seeded sample."""

SEED = 1
"""Of that sample: another training seed does not make another tokenizer."""

SIDES = ("source", "target")


@dataclass(frozen=True)
class Prepared:
    """The training pairs as ids, every sentence with its eos, and as the text that they are of."""

    folder: Path
    tokenizer: Tokenizer
    source: Sentences
    target: Sentences
    source_lines: Lines
    target_lines: Lines

    @property
    def table(self) -> str:
        """What preparing came to, readable."""
        return (self.folder / "report.txt").read_text(encoding="utf-8")


def prepare(
    config: Config, corpus: Corpus, cache_dir: Path, tokenizer: bytes | None = None
) -> Prepared:
    """The training split of a corpus as ids: from the cache, else read, encoded and kept there.

    Without a tokenizer one is learnt from the text.
    """
    folder = cache_dir / "prepared" / _key(config, corpus, tokenizer)
    if not folder.is_dir():
        lock = folder.with_name(f".{folder.name}.lock")
        try:
            with exclusive(lock, f"another process prepares {folder}"):
                if not folder.is_dir():
                    for left in folder.parent.glob(f".{folder.name}{ASIDE}"):
                        shutil.rmtree(left)  # of a process that was killed
                    with written_aside(folder) as aside:
                        aside.mkdir()
                        _write(aside, config, corpus, tokenizer)
        except OSError as error:
            raise UserError(
                f"{folder}: {error.strerror or error}; name another folder with --cache_dir"
            ) from error
    return open_prepared(folder)


def open_prepared(folder: Path) -> Prepared:
    """A prepared corpus, memory-mapped."""
    tokenizer = Tokenizer((folder / "tokenizer.model").read_bytes())
    return Prepared(
        folder,
        tokenizer,
        source=open_sentences(_ids_path(folder, "source"), tokenizer.dtype),
        target=open_sentences(_ids_path(folder, "target"), tokenizer.dtype),
        source_lines=open_lines(_text_path(folder, "source")),
        target_lines=open_lines(_text_path(folder, "target")),
    )


def _write(folder: Path, config: Config, corpus: Corpus, tokenizer: bytes | None) -> None:
    report = _clean(folder, config, corpus)
    if report.kept == 0:
        raise UserError(
            f"data: of {report.read:,} training pairs cleaning leaves none "
            f"({_removals(report) or 'there is no text'}); check the text and the section cleaning"
        )
    if report.kept < report.read:
        say(f"{report.kept:,} of {report.read:,} pairs are kept; left out: {_removals(report)}")
    model = tokenizer or _learn_tokenizer(folder, config)
    (folder / "tokenizer.model").write_bytes(model)
    report.pieces = _encode(folder)
    report.write(folder)


# --- Cleaning -------------------------------------------------------------------------------------


def _clean(folder: Path, config: Config, corpus: Corpus) -> Report:
    """Writes the pairs that break no rule as text, and the others as rejected."""
    data = config.data
    rules = make_rules(config.cleaning, (data.source, data.target), _held_out(config, corpus))
    report = Report(data.corpus or "own text", Side(data.source), Side(data.target))
    report.removed = {rule.name: 0 for rule in rules}
    errors = "surrogateescape" if config.cleaning.broken else "strict"
    text = islice(corpus.pairs("train", errors), data.max_pairs)
    pairs = bar(text, "reading", "pairs", data.max_pairs)
    with (
        FlatWriter(_text_path(folder, "source")) as source,
        FlatWriter(_text_path(folder, "target")) as target,
        _gzip_writer(folder / "rejected.tsv.gz") as rejected,
    ):
        while chunk := list(islice(pairs, CHUNK)):
            kept = list(_sieve(chunk, rules, report, rejected))
            report.keep(kept)
            _write_lines(source, [pair[0] for pair in kept])
            _write_lines(target, [pair[1] for pair in kept])
    return report


def _held_out(config: Config, corpus: Corpus) -> set[Pair]:
    """The pairs of validation and test, where the leakage rule wants them."""
    if not config.cleaning.leakage:
        return set()
    return {pair for split in corpus.held_out for pair in corpus.pairs(split)}


def _sieve(
    pairs: Iterable[Pair], rules: list[Rule], report: Report, rejected: IO[str]
) -> Iterator[Pair]:
    """The pairs that break no rule; the others are counted and written down."""
    for pair in pairs:
        report.read += 1
        rule = broken_rule(rules, pair)
        if rule is None:
            yield pair
        else:
            report.remove(rule, pair)
            rejected.write("\t".join((rule, *(side.replace("\t", " ") for side in pair))) + "\n")


def _gzip_writer(path: Path) -> TextIO:
    """A packed text to write, with no date in it: the same text is the same file."""
    packed = gzip.GzipFile(path, "wb", compresslevel=6, mtime=0)
    return TextIOWrapper(packed, encoding="utf-8", errors="backslashreplace")


def _write_lines(writer: FlatWriter, lines: list[str]) -> None:
    try:
        encoded = [f"{line}\n".encode() for line in lines]
    except UnicodeEncodeError as error:  # JSON can spell what no text has
        raise UserError(
            f"data.train: {error.object[:60]!r} has half a character; mend it, or "
            "--set cleaning.broken=true leaves such pairs out"
        ) from error
    writer.write(b"".join(encoded), map(len, encoded))


def _removals(report: Report) -> str:
    return ", ".join(f"{count:,} {rule}" for rule, count in report.removed.items() if count)


# --- Tokenizer and ids ----------------------------------------------------------------------------


def _learn_tokenizer(folder: Path, config: Config) -> bytes:
    """The SentencePiece model of the text, or of a sample of it."""
    source, target = (open_lines(_text_path(folder, side)) for side in SIDES)
    rows: Sequence[int] = range(len(source))
    if len(source) > TOKENIZER_PAIRS:
        rows = sorted(Random(SEED).sample(rows, TOKENIZER_PAIRS))
    say(
        f"training a tokenizer of {config.tokenizer.vocab_size:,} pieces on "
        f"{min(len(source), TOKENIZER_PAIRS):,} pairs"
    )
    lines = (text[row] for row in rows for text in (source, target))
    return train_tokenizer(lines, config.tokenizer)


class Chunk(NamedTuple):
    """Rows that are encoded at once."""

    side: str
    first: int
    end: int


def _encode(folder: Path) -> dict[str, int]:
    """Writes the ids of both sides, on all cores; returns how many each has."""
    rows = len(open_lines(_text_path(folder, "source")))
    starts = range(0, rows, CHUNK)
    chunks = [Chunk(side, start, min(start + CHUNK, rows)) for side in SIDES for start in starts]
    pieces = dict.fromkeys(SIDES, 0)
    with (
        _encoders(folder, len(chunks)) as mapped,
        FlatWriter(_ids_path(folder, "source")) as source,
        FlatWriter(_ids_path(folder, "target")) as target,
    ):
        writers = dict(zip(SIDES, (source, target), strict=True))
        encoded = bar(mapped(_encode_chunk, chunks), "encoding", "pairs", len(chunks), CHUNK)
        for chunk, (ids, lengths) in zip(chunks, encoded, strict=True):
            writers[chunk.side].write(ids.tobytes(), lengths)
            pieces[chunk.side] += len(ids)
    return pieces


class _Encoder:
    """What a process that encodes works with."""

    tokenizer: Tokenizer
    lines: dict[str, Lines]


def _start_encoder(folder: Path) -> None:
    _Encoder.tokenizer = Tokenizer((folder / "tokenizer.model").read_bytes())
    _Encoder.lines = {side: open_lines(_text_path(folder, side)) for side in SIDES}


def _start_worker(folder: Path) -> None:
    """Starts an encoder in a process of its own."""
    Thread(target=_end_with_parent, daemon=True).start()
    _start_encoder(folder)


def _end_with_parent() -> None:
    """Waits for the end of the process that began this one, and ends with it if it is killed."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _encode_chunk(chunk: Chunk) -> tuple[np.ndarray, np.ndarray]:
    """The ids of some rows end to end, and each row's number of them."""
    lines = _Encoder.lines[chunk.side].between(chunk.first, chunk.end)
    return _Encoder.tokenizer.encode_flat(lines)


@contextmanager
def _encoders(folder: Path, chunks: int) -> Iterator[Callable[..., Iterable[Any]]]:
    """A `map` over a process for each processor; over none where there is little to do."""
    if chunks <= len(SIDES):
        _start_encoder(folder)
        yield map
        return
    workers = min(PROCESSORS, chunks)
    # Spawned, not forked: the caller may have threads, TensorFlow's for instance.
    with ProcessPoolExecutor(workers, get_context("spawn"), _start_worker, (folder,)) as pool:
        yield pool.map


# --- Names ----------------------------------------------------------------------------------------


def _text_path(folder: Path, side: str) -> Path:
    return folder / f"train.{side}.txt"


def _ids_path(folder: Path, side: str) -> Path:
    return folder / f"train.{side}.ids"


def _key(config: Config, corpus: Corpus, tokenizer: bytes | None) -> str:
    """A hash of all that the prepared ids depend on."""
    data = config.data
    held_out = corpus.held_out if config.cleaning.leakage else ()
    depends_on = {
        "format": FORMAT,
        "cleaning": config.cleaning.model_dump(),
        "tokenizer": config.tokenizer.model_dump(exclude={"from_run"}),
        # Its content stands for the run that it is from.
        "given_tokenizer": hashlib.sha256(tokenizer or b"").hexdigest(),
        "corpus": data.corpus,
        "direction": [data.source, data.target],
        "max_pairs": data.max_pairs,
        # Without validation files, the seed decides which rows with both sides go to validation.
        "held_out": ["both sides", config.training.seed] if data.train and not data.val else None,
        "files": {
            split: [(path.suffixes[-2:], _content(path)) for path in corpus.files(split)]
            for split in ("train", *held_out)
        },
    }
    return hashlib.sha256(json.dumps(depends_on, sort_keys=True).encode()).hexdigest()[:16]


def _content(path: Path) -> str:
    """The file's content as a hash: an edited file is another corpus."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; the training text is expected there") from error
