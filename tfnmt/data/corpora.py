"""The corpora: named ones, built-in ones and one's own files, all as pairs of sentences a split."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Protocol

from tfnmt.config import DataConfig
from tfnmt.data import digits, toy, toy_lexicon
from tfnmt.data.files import Pair, read_pairs
from tfnmt.errors import UsageError, UserError
from tfnmt.progress import say

HELD_OUT = 1000
"""Rows held out of one's own text for validation, where none is given; at most a tenth of it."""


class Corpus(Protocol):
    """Parallel text in splits."""

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits."""

    def pairs(self, split: str) -> Iterator[Pair]:
        """(source, target) sentences of a split, in their order."""

    def files(self, split: str) -> tuple[Path, ...]:
        """The files that decide what is in a split."""


@dataclass(frozen=True)
class BuiltIn:
    """A synthetic corpus, generated: `generate(split)` yields pairs in the order of `languages`."""

    languages: tuple[str, str]
    generate: Callable[[str], Iterator[Pair]]
    makers: tuple[ModuleType, ...]  # what generates it: changed, it is another corpus
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

    def pairs(self, split: str) -> Iterator[Pair]:
        """(source, target) sentences of a split."""
        pairs = self.entry.generate(split)
        return ((second, first) for first, second in pairs) if self.backwards else pairs

    def files(self, split: str) -> tuple[Path, ...]:
        """The programs that generate the pairs, in place of what they would be read from."""
        return tuple(Path(str(module.__file__)) for module in self.entry.makers)


@dataclass(frozen=True)
class InFiles:
    """A named corpus: `<data_dir>/<folder>/<file>.<language>`, one file stem a split.

    `groups` are the languages that are parallel with one another; where there are several groups
    (or `pair_folders` says so), each pair has a folder of its own: `wmt14/de-en/`.
    """

    folder: str
    groups: tuple[tuple[str, ...], ...]
    stems: dict[str, str]
    pair_folders: bool = False
    aliases: dict[str, str] = field(default_factory=dict)

    def directions(self) -> set[tuple[str, str]]:
        """Every ordered pair of languages within a group."""
        return {(a, b) for group in self.groups for a in group for b in group if a != b}

    def open(self, source: str, target: str, data_dir: Path) -> "AlignedFiles":
        """The corpus in one direction."""
        folder = data_dir / self.folder
        if self.pair_folders:
            group = next(group for group in self.groups if source in group and target in group)
            folder /= "-".join(sorted((source, target), key=group.index))
        return AlignedFiles(
            {
                split: (folder / f"{stem}.{source}", folder / f"{stem}.{target}")
                for split, stem in self.stems.items()
            }
        )


@dataclass(frozen=True)
class AlignedFiles:
    """A corpus whose splits are two aligned files each."""

    paths: dict[str, tuple[Path, Path]]

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits."""
        return tuple(self.paths)

    def pairs(self, split: str) -> Iterator[Pair]:
        """(source, target) sentences of a split."""
        check_files(self, split)
        return read_pairs(*self.paths[split])

    def files(self, split: str) -> tuple[Path, ...]:
        """The two files of a split."""
        return self.paths[split]


@dataclass(frozen=True)
class HeldOut:
    """One's own text without validation files: the last rows of a seeded shuffle become val."""

    text: AlignedFiles
    seed: int

    @property
    def splits(self) -> tuple[str, ...]:
        """Training text and what is held out of it."""
        return ("train", "val")

    def pairs(self, split: str) -> Iterator[Pair]:
        """The rows of a split; train keeps the file's order."""
        pairs = list(self.text.pairs("train"))
        rows = list(range(len(pairs)))
        random.Random(self.seed).shuffle(rows)
        held_out = min(HELD_OUT, len(pairs) // 10)
        if held_out == 0:
            raise UserError(
                f"{self.text.paths['train'][0]}: {len(pairs)} pairs are too few to hold some out; "
                "give validation text with --val"
            )
        if split == "val":
            say(f"no --val: the last {held_out:,} rows of a seeded shuffle are held out of train")
        chosen = rows[-held_out:] if split == "val" else sorted(rows[:-held_out])
        return (pairs[row] for row in chosen)

    def files(self, split: str) -> tuple[Path, ...]:
        """Both splits come from the training files."""
        return self.text.files("train")


CORPORA: dict[str, BuiltIn | InFiles] = {
    "toy": BuiltIn(toy.LANGUAGES, toy.pairs, (toy, toy_lexicon)),
    "copy": BuiltIn(("digits", "copied"), digits.copy_pairs, (digits,)),
    "reverse": BuiltIn(("digits", "reversed"), digits.reverse_pairs, (digits,)),
    "multi30k": InFiles(
        folder="multi30k",
        groups=(("en", "de", "fr"),),
        stems={"train": "train", "val": "val", "test_2016_flickr": "test_2016_flickr"},
        aliases={"test": "test_2016_flickr"},
    ),
    "wmt14": InFiles(
        folder="wmt14",
        groups=(("de", "en"), ("fr", "en")),
        stems={"train": "train", "newstest2013": "newstest2013", "newstest2014": "newstest2014"},
        pair_folders=True,
        aliases={"val": "newstest2013", "test": "newstest2014"},
    ),
}


def open_corpus(data: DataConfig, seed: int, data_dir: Path) -> Corpus:
    """The corpus that a configuration names, in its direction."""
    if data.train is not None:
        return _own_text(data, seed)
    assert data.corpus is not None
    entry = CORPORA.get(data.corpus)
    if entry is None:
        raise UsageError(f"data.corpus: no corpus '{data.corpus}'; there are {', '.join(CORPORA)}")
    if (data.source, data.target) not in entry.directions():
        pairs = ", ".join(f"{a}-{b}" for a, b in sorted(entry.directions()))
        raise UsageError(
            f"data.corpus: {data.corpus} has no {data.source}-{data.target}; it has {pairs}"
        )
    return entry.open(data.source, data.target, data_dir)


def check_files(corpus: Corpus, *splits: str) -> None:
    """Raises a UserError that names every missing file of some splits."""
    problems = [
        f"{path}: no such file; the {split} text is expected there"
        for split in splits
        for path in corpus.files(split)
        if not path.is_file()
    ]
    if problems:
        raise UserError(*dict.fromkeys(problems))


def split_name(data: DataConfig, corpus: Corpus, split: str) -> str:
    """The corpus' own name of a split: `test` is `newstest2014` in wmt14."""
    entry = CORPORA.get(data.corpus or "")
    aliases = entry.aliases if isinstance(entry, InFiles) else {}
    name = aliases.get(split, split)
    if name not in corpus.splits:
        known = ", ".join((*corpus.splits, *aliases))
        raise UsageError(f"--split={split}: this corpus has no such split; it has {known}")
    return name


def _own_text(data: DataConfig, seed: int) -> Corpus:
    assert data.train is not None
    train = (Path(data.train[0]), Path(data.train[1]))
    if data.val is None:
        return HeldOut(AlignedFiles({"train": train}), seed)
    return AlignedFiles({"train": train, "val": (Path(data.val[0]), Path(data.val[1]))})
