"""A corpus on disk: its tokenizer and its ids, encoded once and memory-mapped afterwards.

A prepared corpus is a folder named by the hash of all it depends on:

    tokenizer.model
    train.source.npy  train.source.splits.npy   ids end to end, and where each sentence begins
    train.target.npy  train.target.splits.npy
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from tfnmt.config import Config
from tfnmt.data.corpora import Corpus
from tfnmt.data.files import Pair
from tfnmt.data.tokenizer import EOS, Tokenizer, train_tokenizer
from tfnmt.errors import UserError
from tfnmt.progress import bar, say
from tfnmt.run import written_aside

FORMAT = 1
"""Raised whenever prepared folders of older versions must not be used any more."""

CHUNK = 10_000


@dataclass(frozen=True)
class Sentences:
    """Many sentences of ids in two flat arrays."""

    ids: np.ndarray  # all ids, end to end
    splits: np.ndarray  # [sentences + 1]: sentence i is ids[splits[i]:splits[i + 1]]

    def __len__(self) -> int:
        return len(self.splits) - 1

    @property
    def lengths(self) -> np.ndarray:
        """The number of ids of each sentence."""
        return np.diff(self.splits)

    def __getitem__(self, row: int) -> np.ndarray:
        return self.ids[self.splits[row] : self.splits[row + 1]]


@dataclass(frozen=True)
class Prepared:
    """The training pairs as ids; every sentence ends with eos."""

    tokenizer: Tokenizer
    source: Sentences
    target: Sentences


def prepare(config: Config, corpus: Corpus, cache_dir: Path) -> Prepared:
    """The training split of a corpus as ids: from the cache, else read, encoded and kept there."""
    folder = cache_dir / "prepared" / _key(config, corpus)
    if not folder.is_dir():
        pairs = _read_pairs(config, corpus)
        try:
            with written_aside(folder) as aside:
                aside.mkdir()
                _write(aside, pairs, config)
        except UserError:
            if not folder.is_dir():  # another training of the same text may have been faster
                raise
    return _load(folder)


def _read_pairs(config: Config, corpus: Corpus) -> list[Pair]:
    """The training pairs, without those that lack a side."""
    pairs = islice(corpus.pairs("train"), config.data.max_pairs)
    read = list(bar(pairs, "reading", "pairs", config.data.max_pairs))
    kept = [(source, target) for source, target in read if source.strip() and target.strip()]
    if len(kept) < len(read):
        say(f"{len(read) - len(kept):,} of {len(read):,} pairs lack a side and are left out")
    if not kept:
        raise UserError("data: the training text has no pair with two sides; check the files")
    return kept


def _write(folder: Path, pairs: list[Pair], config: Config) -> None:
    say(f"training a tokenizer of {config.tokenizer.vocab_size:,} pieces on {len(pairs):,} pairs")
    model = train_tokenizer((line for pair in pairs for line in pair), config.tokenizer)
    (folder / "tokenizer.model").write_bytes(model)
    tokenizer = Tokenizer(model)
    for side, name in enumerate(("source", "target")):
        lines = [pair[side] for pair in pairs]
        encoded = _encode(tokenizer, bar(_chunks(lines), f"encoding {name}", f"x{CHUNK}"))
        np.save(folder / f"train.{name}.npy", encoded.ids)
        np.save(folder / f"train.{name}.splits.npy", encoded.splits)


def _encode(tokenizer: Tokenizer, chunks: Iterable[list[str]]) -> Sentences:
    """The ids of chunks of lines, eos added to each line."""
    dtype = np.uint16 if tokenizer.vocab_size <= 2**16 else np.int32
    ids: list[np.ndarray] = []
    lengths: list[int] = [0]
    for chunk in chunks:
        encoded = tokenizer.encode(chunk)
        ids.append(np.concatenate([np.array([*line, EOS], dtype) for line in encoded]))
        lengths.extend(len(line) + 1 for line in encoded)
    return Sentences(np.concatenate(ids), np.cumsum(lengths, dtype=np.int64))


def _chunks(lines: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(lines), CHUNK):
        yield lines[start : start + CHUNK]


def _load(folder: Path) -> Prepared:
    def sentences(name: str) -> Sentences:
        return Sentences(
            np.load(folder / f"train.{name}.npy", mmap_mode="r"),
            np.load(folder / f"train.{name}.splits.npy", mmap_mode="r"),
        )

    tokenizer = Tokenizer((folder / "tokenizer.model").read_bytes())
    return Prepared(tokenizer, sentences("source"), sentences("target"))


def _key(config: Config, corpus: Corpus) -> str:
    """A hash of all that the prepared ids depend on."""
    files = corpus.files("train")
    depends_on = {
        "format": FORMAT,
        "tokenizer": config.tokenizer.model_dump(),
        "corpus": config.data.corpus,
        "direction": [config.data.source, config.data.target],
        "max_pairs": config.data.max_pairs,
        # Without validation files, the seed decides which rows are left for training.
        "held_out": config.training.seed if config.data.train and not config.data.val else None,
        "files": [_content(path) for path in files],
    }
    return hashlib.sha256(json.dumps(depends_on, sort_keys=True).encode()).hexdigest()[:16]


def _content(path: Path) -> str:
    """The file's content as a hash: an edited file is another corpus."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; the training text is expected there") from error
