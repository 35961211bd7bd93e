"""Corpora of several directions as one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from tfnmt.config import DataConfig
from tfnmt.data.corpora.corpus import Corpus, Files, Fingerprint
from tfnmt.data.corpora.text_files import Pair


@dataclass(frozen=True)
class Directions:
    """A corpus of several directions. A split is the text of one direction after another."""

    parts: Mapping[str, Corpus]  # by direction, for example `en-de`

    @property
    def splits(self) -> tuple[str, ...]:
        """Return the splits that every direction has."""
        first, *others = self.parts.values()
        return tuple(name for name in first.splits if all(name in part.splits for part in others))

    @property
    def held_out(self) -> tuple[str, ...]:
        """Return the held-out splits as `<direction> <split>`."""
        return tuple(
            f"{direction} {split}"
            for direction, part in self.parts.items()
            for split in part.held_out
        )

    def pairs(self, split: str, errors: str = "strict") -> Iterator[Pair]:
        """Yield the (source, target) sentences of all directions."""
        return chain.from_iterable(part.pairs(split, errors) for part in self.parts.values())

    def files(self, split: str) -> tuple[Path, ...]:
        """Return the files of all directions, each once."""
        return tuple(
            dict.fromkeys(path for part in self.parts.values() for path in part.files(split))
        )

    def fingerprint(self, split: str) -> Fingerprint:
        """Return the fingerprints of all directions."""
        return [each for part in self.parts.values() for each in part.fingerprint(split)]


def by_direction(data: DataConfig, corpus: Corpus) -> Mapping[str, Corpus]:
    """Return the corpus of each direction, in the order of the configuration."""
    return corpus.parts if isinstance(corpus, Directions) else {data.all_directions[0]: corpus}


def with_held_out(corpus: Corpus, held_out: Sequence[str]) -> Corpus:
    """Return the corpus with fixed held-out splits, as its `held_out` names them."""
    if isinstance(corpus, Files):
        return replace(corpus, fixed_held_out=tuple(held_out))
    if not isinstance(corpus, Directions):
        return corpus
    splits: dict[str, list[str]] = {direction: [] for direction in corpus.parts}
    for line in held_out:
        direction, _, split = line.partition(" ")
        splits.setdefault(direction, []).append(split)
    return Directions(
        {name: with_held_out(part, splits[name]) for name, part in corpus.parts.items()}
    )
