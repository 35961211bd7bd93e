"""A corpus: pairs of sentences in splits, whatever they come from."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Protocol

from tfnmt.data.corpora.formats import SURROGATES, Text
from tfnmt.data.corpora.text_files import Pair
from tfnmt.errors import UserError

HELD_OUT = 1000
"""Rows held out of one's own text for validation, where none is given; at most a tenth of it."""


class Corpus(Protocol):
    """Parallel text in splits."""

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits."""

    @property
    def held_out(self) -> tuple[str, ...]:
        """The splits that training text must not repeat, of those that are there."""

    def pairs(self, split: str, errors: str = "strict") -> Iterator[Pair]:
        """(source, target) sentences of a split, in their order.

        `errors` says what becomes of bytes that are not UTF-8, as in `open`.
        """

    def files(self, split: str) -> tuple[Path, ...]:
        """The files that decide what is in a split."""


@dataclass(frozen=True)
class BuiltIn:
    """A synthetic corpus, generated: `generate(split)` yields pairs in the order of `languages`."""

    languages: tuple[str, str]
    generate: Callable[[str], Iterator[Pair]]
    makers: tuple[ModuleType, ...]  # what generates it: changed, it is another corpus
    pairs: str  # how many training pairs, for people
    splits: tuple[str, ...] = ("train", "val", "test")

    def directions(self) -> set[tuple[str, str]]:
        """Both directions."""
        return {self.languages, self.languages[::-1]}

    def open(self, source: str, target: str, data_dir: Path) -> "BuiltInCorpus":
        """The corpus in one direction."""
        del data_dir  # nothing of it is in files
        return BuiltInCorpus(self, (source, target) != self.languages)


@dataclass(frozen=True)
class BuiltInCorpus:
    """A built-in corpus in one direction."""

    entry: BuiltIn
    backwards: bool

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits."""
        return self.entry.splits

    @property
    def held_out(self) -> tuple[str, ...]:
        """None: its splits are made so that they share no sentence."""
        return ()

    def pairs(self, split: str, errors: str = "strict") -> Iterator[Pair]:
        """(source, target) sentences of a split."""
        del errors
        pairs = self.entry.generate(split)
        return ((second, first) for first, second in pairs) if self.backwards else pairs

    def files(self, split: str) -> tuple[Path, ...]:
        """The programs that generate the pairs, in place of what they would be read from."""
        return tuple(Path(str(module.__file__)) for module in self.entry.makers)


@dataclass(frozen=True)
class Files:
    """A corpus in files: each split is one text after another."""

    texts: dict[str, tuple[Text, ...]]
    settled: tuple[str, ...] | None = None
    """What is held out, where that was settled before."""

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits."""
        return tuple(self.texts)

    @property
    def held_out(self) -> tuple[str, ...]:
        """All splits but train whose files are there, or those that it was settled to be."""
        if self.settled is not None:
            return self.settled
        return tuple(
            split
            for split in self.texts
            if split != "train" and all(path.is_file() for path in self.files(split))
        )

    def pairs(self, split: str, errors: str = "strict") -> Iterator[Pair]:
        """(source, target) sentences of a split."""
        check_files(self, split)
        return (pair for text in self.texts[split] for pair in text.pairs(errors))

    def files(self, split: str) -> tuple[Path, ...]:
        """The files of a split."""
        return tuple(path for text in self.texts[split] for path in text.paths)


@dataclass(frozen=True)
class HeldOut:
    """One's own text without validation text: the last rows of a seeded shuffle become val."""

    text: Files
    seed: int

    @property
    def splits(self) -> tuple[str, ...]:
        """Training text and what is held out of it."""
        return ("train", "val")

    @property
    def held_out(self) -> tuple[str, ...]:
        """What is held out may stand in the text twice."""
        return ("val",)

    def pairs(self, split: str, errors: str = "strict") -> Iterator[Pair]:
        """The rows of a split, in the order of the text."""
        held_out = self._val_rows
        if split == "val":
            errors = "surrogateescape"  # of the other rows: none that is held out has errors
        for row, pair in enumerate(self.text.pairs("train", errors)):
            if (row in held_out) == (split == "val"):
                yield pair

    def files(self, split: str) -> tuple[Path, ...]:
        """Both splits come from the training files."""
        return self.text.files("train")

    @cached_property
    def _val_rows(self) -> frozenset[int]:
        pairs = self.text.pairs("train", "surrogateescape")
        rows = [row for row, pair in enumerate(pairs) if _can_be_judged_by(pair)]
        held_out = min(HELD_OUT, len(rows) // 10)
        if held_out == 0:
            raise UserError(
                f"{self.files('train')[0]}: {len(rows)} pairs are too few to hold some out; "
                "give validation text with --val"
            )
        random.Random(self.seed).shuffle(rows)
        return frozenset(rows[-held_out:])


def _can_be_judged_by(pair: Pair) -> bool:
    """Whether both sides have text, all of it UTF-8."""
    return all(side.strip() and not SURROGATES.search(side) for side in pair)


def check_files(corpus: Corpus, *splits: str) -> None:
    """Raises a UserError that names every missing file of some splits, each but once."""
    missing: dict[Path, str] = {}
    for split in splits:
        for path in corpus.files(split):
            if not path.is_file():
                missing.setdefault(path, split)
    if missing:
        raise UserError(
            *(
                f"{path}: no such file; the {split} text is expected there"
                for path, split in missing.items()
            )
        )
