"""A corpus: pairs of sentences in splits, generated or read from files."""

import hashlib
import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

from tfnmt.data.corpora.formats import SURROGATES, Text
from tfnmt.data.corpora.text_files import Pair
from tfnmt.errors import UserError
from tfnmt.progress import log

HELD_OUT = 1000
"""Rows of custom data held out for validation if no validation set is given, at most a tenth."""


Fingerprint = list[tuple[list[str], str]]
"""Identifies the text of a split: the last two suffixes and the SHA-256 of each file."""


class Corpus(Protocol):
    """Parallel text in splits, in one direction."""

    @property
    def splits(self) -> tuple[str, ...]:
        """Return the names of the splits."""

    @property
    def held_out(self) -> tuple[str, ...]:
        """Return the splits that the training text must not repeat, if they are present."""

    def pairs(self, split: str, errors: str = "strict") -> Iterator[Pair]:
        """Yield the (source, target) sentences of a split, in order.

        Args:
            split: The name of the split.
            errors: The treatment of bytes that are not UTF-8, as in `open`.
        """

    def files(self, split: str) -> tuple[Path, ...]:
        """Return the files of a split, none for a generated corpus."""

    def fingerprint(self, split: str) -> Fingerprint:
        """Return a value that identifies the text of a split.

        It is part of the key of a prepared corpus. So a run resumes only while the fingerprints of
        its text stay the same.
        """


@dataclass(frozen=True)
class BuiltIn:
    """A generated corpus: `generate(split)` yields pairs in the order of `languages`.

    `revision` identifies the generated text. Change it whenever the generated text changes. Tests
    pin a checksum of the text.
    """

    languages: tuple[str, str]
    generate: Callable[[str], Iterator[Pair]]
    revision: tuple[str, ...]
    pairs: str  # number of training pairs, for listings
    splits: tuple[str, ...] = ("train", "val", "test")

    def directions(self) -> set[tuple[str, str]]:
        """Return both directions."""
        return {self.languages, self.languages[::-1]}

    def open(self, source: str, target: str, data_dir: Path) -> "BuiltInCorpus":
        """Return the corpus in one direction."""
        del data_dir  # the corpus has no files
        return BuiltInCorpus(self, (source, target) != self.languages)


@dataclass(frozen=True)
class BuiltInCorpus:
    """A generated corpus in one direction."""

    entry: BuiltIn
    backwards: bool

    @property
    def splits(self) -> tuple[str, ...]:
        """Return the names of the splits."""
        return self.entry.splits

    @property
    def held_out(self) -> tuple[str, ...]:
        """Return nothing: the splits are generated so that they share no sentence."""
        return ()

    def pairs(self, split: str, errors: str = "strict") -> Iterator[Pair]:
        """Yield the (source, target) sentences of a split."""
        del errors
        pairs = self.entry.generate(split)
        return ((second, first) for first, second in pairs) if self.backwards else pairs

    def files(self, split: str) -> tuple[Path, ...]:
        """Return no files."""
        return ()

    def fingerprint(self, split: str) -> Fingerprint:
        """Return the revision of the generated text."""
        return [([".py"], revision) for revision in self.entry.revision]


@dataclass(frozen=True)
class Files:
    """A corpus in files. Each split is a sequence of texts."""

    texts: dict[str, tuple[Text, ...]]
    fixed_held_out: tuple[str, ...] | None = None
    """The held-out splits of an existing run, which stay the same when it resumes."""

    @property
    def splits(self) -> tuple[str, ...]:
        """Return the names of the splits."""
        return tuple(self.texts)

    @property
    def held_out(self) -> tuple[str, ...]:
        """Return all splits except train whose files exist, or the fixed ones."""
        if self.fixed_held_out is not None:
            return self.fixed_held_out
        return tuple(
            split
            for split in self.texts
            if split != "train" and all(os.path.isfile(path) for path in self.files(split))
        )

    def pairs(self, split: str, errors: str = "strict") -> Iterator[Pair]:
        """Yield the (source, target) sentences of a split."""
        check_files(self, split)
        return (pair for text in self.texts[split] for pair in text.pairs(errors))

    def files(self, split: str) -> tuple[Path, ...]:
        """Return the files of a split."""
        return tuple(path for text in self.texts[split] for path in text.paths)

    def fingerprint(self, split: str) -> Fingerprint:
        """Return endings and checksums of the files of a split."""
        return _fingerprint(self.files(split))


@dataclass(frozen=True)
class HeldOut:
    """Custom data without a validation set: the last rows of a seeded shuffle become val."""

    text: Files
    seed: int

    @property
    def splits(self) -> tuple[str, ...]:
        """Return train and val."""
        return ("train", "val")

    @property
    def held_out(self) -> tuple[str, ...]:
        """Return val: the training text may contain a held-out pair twice."""
        return ("val",)

    def pairs(self, split: str, errors: str = "strict") -> Iterator[Pair]:
        """Yield the rows of a split, in the order of the text."""
        held_out = self._val_rows
        if split == "val":
            errors = "surrogateescape"  # held-out rows have no errors, and the others are skipped
        for row, pair in enumerate(self.text.pairs("train", errors)):
            if (row in held_out) == (split == "val"):
                yield pair

    def files(self, split: str) -> tuple[Path, ...]:
        """Return the training files, which contain both splits."""
        return self.text.files("train")

    def fingerprint(self, split: str) -> Fingerprint:
        """Return endings and checksums of the training files."""
        return _fingerprint(self.files(split))

    @cached_property
    def _val_rows(self) -> frozenset[int]:
        pairs = self.text.pairs("train", "surrogateescape")
        rows = [row for row, pair in enumerate(pairs) if _can_be_held_out(pair)]
        held_out = min(HELD_OUT, len(rows) // 10)
        if held_out == 0:
            raise UserError(
                f"{self.files('train')[0]}: {len(rows)} pairs are too few to hold some out for "
                "validation; give a validation set with --val"
            )
        random.Random(self.seed).shuffle(rows)
        return frozenset(rows[-held_out:])


def _can_be_held_out(pair: Pair) -> bool:
    """Return whether both sides have text, all of it UTF-8."""
    return all(side.strip() and not SURROGATES.search(side) for side in pair)


def _fingerprint(files: tuple[Path, ...]) -> Fingerprint:
    return [(path.suffixes[-2:], _checksum(path)) for path in files]


def _checksum(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; put the training text there") from error


def check_files(corpus: Corpus, *splits: str) -> None:
    """Raise a UserError that names every missing file of some splits once."""
    missing: dict[Path, str] = {}
    for split in splits:
        for path in corpus.files(split):
            if not os.path.isfile(path):
                missing.setdefault(path, split)
    if missing:
        raise UserError(
            *(
                f"{path}: {_reason(path)}; put the {split} text there"
                for path, split in missing.items()
            )
        )


def _reason(path: Path) -> str:
    """Return why a path is not a file that can be read."""
    try:
        path.stat()
    except FileNotFoundError:
        return "no such file"
    except OSError as error:
        return error.strerror or str(error)
    except ValueError as error:  # NUL in the name
        return str(error)
    return "not a file"


def log_empty_pairs(name: str, pairs: Sequence[Pair]) -> None:
    """Log how many pairs of a validation set or a test set have an empty side."""
    empty = sum(not all(side.strip() for side in pair) for pair in pairs)
    if empty:
        log(
            f"{name}: {empty:,} of {len(pairs):,} pairs have an empty side and count in BLEU; "
            "remove them"
        )
