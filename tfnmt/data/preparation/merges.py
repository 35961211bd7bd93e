"""BPE merges (Sennrich et al., 2016) with BPE-dropout (Provilkov et al., 2020).

SentencePiece can skip merges too, but its random numbers differ between processes. Without skipped
merges the tokens are the same as SentencePiece's.
"""

from collections.abc import Iterator
from functools import lru_cache
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
import sentencepiece

WORDS = 2**18
"""Size of the cache of words."""


class Segmentation(NamedTuple):
    """The tokens of a word."""

    ids: tuple[int, ...]
    merges: int  # number of merges, skipped ones included


class Skips:
    """Selects the merges to skip, each with the same probability, over a sequence of words.

    It samples the distance between two skips, so a word without a skipped merge costs nothing.
    """

    def __init__(self, dropout: float, seed: int) -> None:
        self._gaps = _gaps(dropout, seed)
        self.left = next(self._gaps)  # merges before the next skipped one

    def skip(self) -> None:
        """Advance to the next skip."""
        self.left = next(self._gaps)


class Merger:
    """The merges of a SentencePiece BPE model."""

    def __init__(self, processor: sentencepiece.SentencePieceProcessor, first_token: int) -> None:
        self._processor = processor
        self._byte_ids = [processor.piece_to_id(f"<0x{byte:02X}>") for byte in range(256)]
        numbers = set(range(first_token, processor.vocab_size())) - set(self._byte_ids)
        self._ids = {
            processor.id_to_piece(number): number
            for number in numbers
            if not processor.is_control(number)
        }
        self._costs = {token: -processor.get_score(number) for token, number in self._ids.items()}
        self._segment = lru_cache(maxsize=WORDS)(self._segment_word)

    def sample(self, word: str, skips: Skips) -> tuple[int, ...]:
        """Return the ids of a word with some merges skipped."""
        done = 0  # merges decided so far
        skipped: tuple[int, ...] = ()
        segmentation = self._segment(word, skipped)
        while done + skips.left < segmentation.merges:
            skipped = (*skipped, done + skips.left)
            done += skips.left + 1
            skips.skip()
            segmentation = self._segment(word, skipped)
        skips.left -= segmentation.merges - done
        return segmentation.ids

    def _segment_word(self, word: str, skipped: tuple[int, ...]) -> Segmentation:
        """Segment a word without the merges with these numbers."""
        tokens, merges = self._merge(self._processor.normalize(word), skipped)
        ids: list[int] = []
        for token in tokens:
            known = self._ids.get(token)
            ids += [self._byte_ids[byte] for byte in token.encode()] if known is None else [known]
        return Segmentation(tuple(ids), merges)

    def _merge(self, characters: str, skipped: tuple[int, ...]) -> tuple[list[str], int]:
        """Merge characters as SentencePiece does.

        The neighbors with the best score are merged first, and the left pair if scores are equal.
        """
        tokens = list(characters)
        after, before = list(range(1, len(tokens) + 1)), list(range(-1, len(tokens)))
        agenda: list[tuple[float, int, int, str]] = []
        merges = 0

        def propose(left: int, right: int) -> None:
            if left >= 0 and right < len(tokens):
                merged = tokens[left] + tokens[right]
                if merged in self._costs:
                    heappush(agenda, (self._costs[merged], left, right, merged))

        for right in range(1, len(tokens)):
            propose(right - 1, right)
        while agenda:
            _, left, right, merged = heappop(agenda)
            gone = not (tokens[left] and tokens[right])
            if gone or tokens[left] + tokens[right] != merged:
                continue
            merges += 1
            if merges - 1 in skipped:
                continue
            tokens[left], tokens[right] = merged, ""
            after[left] = after[right]
            before[after[left]] = left
            propose(before[left], left)
            propose(left, after[left])
        return [token for token in tokens if token], merges


def _gaps(dropout: float, seed: int) -> Iterator[int]:
    """Yield the numbers of merges between skipped ones, endlessly."""
    random = np.random.default_rng(seed)
    while True:
        yield from (random.geometric(dropout, size=1000) - 1).tolist()
