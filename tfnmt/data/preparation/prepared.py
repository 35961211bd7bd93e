"""The prepared corpus: cleaned text, tokenizer and ids, written once and memory-mapped afterwards.

It is a folder named by the hash of everything it depends on:

    train.source.txt  train.target.txt      the pairs that were kept
    tokenizer.model                         trained on them
    train.source.ids  train.target.ids      their ids, concatenated, with EOS after every sentence
    *.splits.npy                            the start of each sentence
    report.json  .txt  .html                removed pairs by rule, lengths, samples
    rejected.tsv.gz                         every removed pair: rule, source, target
    checksums.json                          the checksums of text, tokenizer, ids and starts

With several directions, the pairs of one follow those of another, and the ids of a source begin
with the language token of its target. directions.json has the number of pairs of each direction,
and a folder for each direction, such as en-de/, has its report and its removed pairs.

Whenever a corpus is opened, its checksums and the size of its text are verified, and a damaged one
is prepared again. The checksums of the text are verified if training reads it, for BPE-dropout.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from pathlib import Path
from random import Random

import numpy as np

from tfnmt.config import Config, DataConfig
from tfnmt.data.corpora.corpus import Corpus, Fingerprint
from tfnmt.data.corpora.directions import by_direction
from tfnmt.data.preparation.clean_text import clean, report_folder
from tfnmt.data.preparation.encoding import SIDES, encode, ids_path, text_path
from tfnmt.data.preparation.sharded import Shards, open_preparation
from tfnmt.data.preparation.storage import (
    TextArray,
    TokenArray,
    open_text,
    open_tokens,
    splits_path,
)
from tfnmt.data.preparation.tokenizer import Tokenizer, train_tokenizer
from tfnmt.errors import UsageError, UserError
from tfnmt.progress import log
from tfnmt.runs.checkpoints import CHECKSUMS, TOKENIZER, sha256
from tfnmt.runtime.files import atomic_folder, file_lock, parse_json, remove_leftovers
from tfnmt.runtime.startup import CPU_COUNT

FORMAT = 2
"""Version of the folder. Increase it when older folders must not be used any more."""

TOKENIZER_PAIRS = 500_000
"""Maximum number of pairs that the tokenizer is trained on: a seeded sample."""

SAMPLE_SEED = 1
"""Fixed seed for sampling, so that the training seed does not change the tokenizer."""

DIRECTIONS = "directions.json"


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
    directions: Mapping[str, range] | None = None  # the rows of each direction, if several

    @property
    def identity(self) -> str:
        """Return name and checksum, by which a run recognizes its training data."""
        return f"{self.folder.name} {self.checksum}"

    @property
    def table(self) -> str:
        """Return the report as a readable table, or one for each direction."""
        if self.directions is None:
            return (self.folder / "report.txt").read_text(encoding="utf-8")
        tables = (
            f"{name}\n{(self.folder / name / 'report.txt').read_text(encoding='utf-8')}"
            for name in self.directions
        )
        return "\n\n".join(tables)


def prepare(
    config: Config,
    corpus: Corpus,
    cache_dir: Path,
    tokenizer: bytes | None = None,
    shards: Shards | None = None,
) -> Prepared:
    """Return the prepared training split of a corpus, from the cache if possible.

    Args:
        config: Cleaning rules, tokenizer settings and the data section.
        corpus: The corpus.
        cache_dir: The folder that keeps prepared corpora.
        tokenizer: The content of a SentencePiece model file; None trains one on the text.
        shards: How to prepare the corpus in shards; None uses this process, and all cores to
            encode the text. The result is the same.

    Raises:
        UserError: The text cannot be read, no pair is left, the disk is full, or a process was
            killed.
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
                _write(temporary, config, corpus, tokenizer, shards)
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
            source=open_tokens(ids_path(folder, "source"), tokenizer.dtype),
            target=open_tokens(ids_path(folder, "target"), tokenizer.dtype),
            source_lines=open_text(text_path(folder, "source")),
            target_lines=open_text(text_path(folder, "target")),
            checksum=checksum,
            directions=_read_directions(folder),
        )
    except ValueError as error:
        raise UserError(str(error)) from error


def _read_directions(folder: Path) -> dict[str, range] | None:
    """Return the rows of each direction, or None if there is a single one."""
    path = folder / DIRECTIONS
    return _row_ranges(parse_json(path.read_bytes())) if path.exists() else None


def _row_ranges(pairs: Mapping[str, int]) -> dict[str, range]:
    """Return the rows of each direction, given its number of pairs."""
    starts = accumulate(pairs.values(), initial=0)
    return {name: range(*rows) for name, rows in zip(pairs, pairwise(starts), strict=True)}


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
    if DIRECTIONS in recorded and not (folder / DIRECTIONS).exists():
        raise UserError(f"{folder / DIRECTIONS}: missing")
    for name, checksum in found.items():
        if recorded.get(name) != checksum:
            raise UserError(f"{folder / name}: damaged")
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()


def _checksums(paths: list[Path]) -> dict[str, str]:
    """Return the checksums of files by name."""
    with ThreadPoolExecutor(CPU_COUNT) as pool:
        checksums = pool.map(sha256, paths)
    return {path.name: checksum for path, checksum in zip(paths, checksums, strict=True)}


def _write(
    folder: Path,
    config: Config,
    corpus: Corpus,
    tokenizer: bytes | None,
    shards: Shards | None,
) -> None:
    with nullcontext() if shards is None else open_preparation(folder, shards) as sharded:
        clean_all, encode_all = (sharded.clean, sharded.encode) if sharded else (clean, encode)
        reports = clean_all(folder, config, by_direction(config.data, corpus))
        rows = _row_ranges({direction: report.kept for direction, report in reports.items()})
        model = tokenizer or _train_tokenizer(folder, config, rows)
        _check_languages(Tokenizer(model), config.data)
        (folder / TOKENIZER).write_bytes(model)
        tokens = encode_all(folder, rows)
    for direction, report in reports.items():
        report.tokens = tokens[direction]
        report.write(report_folder(folder, direction, rows))
    if len(rows) > 1:
        pairs = {direction: report.kept for direction, report in reports.items()}
        (folder / DIRECTIONS).write_text(json.dumps(pairs) + "\n")
    checksums = _checksums([*_id_files(folder), *_text_files(folder)])
    (folder / CHECKSUMS).write_text(json.dumps(checksums, indent=1) + "\n")


# --- Tokenizer and ids ----------------------------------------------------------------------------


def _train_tokenizer(folder: Path, config: Config, directions: Mapping[str, range]) -> bytes:
    """Train the SentencePiece model on the text or a sample of it."""
    source, target = (open_text(text_path(folder, side)) for side in SIDES)
    # Both directions of two languages have the same text: one of them is enough.
    pairs = {frozenset(name.split("-")): rows for name, rows in reversed([*directions.items()])}
    rows = _sample_rows([*pairs.values()], TOKENIZER_PAIRS)
    log(f"training a tokenizer with {config.tokenizer.vocab_size:,} tokens on {len(rows):,} pairs")
    lines = (text[row] for row in rows for text in (source, target))
    targets = config.data.targets
    return train_tokenizer(lines, config.tokenizer, targets if len(targets) > 1 else ())


def _sample_rows(ranges: Sequence[range], limit: int) -> Sequence[int]:
    """Return the rows of some ranges, or a seeded sample of them."""
    count = sum(map(len, ranges))
    if count <= limit:
        return [*chain(*ranges)]
    positions = np.array(sorted(Random(SAMPLE_SEED).sample(range(count), limit)))
    ends = np.cumsum([len(rows) for rows in ranges])
    shifts = np.array([rows.stop for rows in ranges]) - ends
    sampled: list[int] = (positions + shifts[np.searchsorted(ends, positions, "right")]).tolist()
    return sampled


def _check_languages(tokenizer: Tokenizer, data: DataConfig) -> None:
    """Raise a UserError if the tokenizer of another run lacks a language token."""
    if len(data.targets) > 1 and not tokenizer.language_tokens:
        raise UsageError(
            "tokenizer.from_run or training.init_from: its tokenizer has no language tokens for "
            f"{', '.join(data.targets)}; use a run with these targets, or none"
        )
    for target in data.targets:
        tokenizer.source_prefix(target)


# --- Names ----------------------------------------------------------------------------------------


def _text_files(folder: Path) -> list[Path]:
    return [text_path(folder, side) for side in SIDES]


def _id_files(folder: Path) -> list[Path]:
    """Return the files that training always reads."""
    ids = [ids_path(folder, side) for side in SIDES]
    directions = [path] if (path := folder / DIRECTIONS).exists() else []
    return [folder / TOKENIZER, *ids, *map(splits_path, [*ids, *_text_files(folder)]), *directions]


def prepared_name(config: Config, corpus: Corpus, tokenizer: bytes | None) -> str:
    """Return the name of a prepared corpus: a hash of everything that its ids depend on."""
    data = config.data
    depends_on = {
        "format": FORMAT,
        "cleaning": config.cleaning.model_dump(),
        "tokenizer": config.tokenizer.model_dump(exclude={"from_run"}),
        # The content identifies the run that it is from.
        "given_tokenizer": hashlib.sha256(tokenizer or b"").hexdigest(),
        "corpus": data.corpus,
        "max_pairs": data.max_pairs,
        # Without validation files, the seed selects the rows held out for validation.
        "held_out": ["both sides", config.training.seed] if data.train and not data.val else None,
    }
    parts = {name: _fingerprints(config, each) for name, each in by_direction(data, corpus).items()}
    if len(parts) == 1:
        depends_on |= {"direction": [data.source, data.target], "files": parts.popitem()[1]}
    else:
        depends_on |= {"direction": list(parts), "files": parts}
    return hashlib.sha256(json.dumps(depends_on, sort_keys=True).encode()).hexdigest()[:16]


def _fingerprints(config: Config, corpus: Corpus) -> dict[str, Fingerprint]:
    """Return the fingerprints of the training split and of the splits held out of it."""
    held_out = corpus.held_out if config.cleaning.leakage else ()
    return {split: corpus.fingerprint(split) for split in ("train", *held_out)}
