"""BPE merges (Sennrich et al., 2016) with BPE-dropout (Provilkov et al., 2020).

SentencePiece can skip merges too, but its random numbers differ between processes. Without skipped
merges the tokens are the same as SentencePiece's.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

import numpy as np
import sentencepiece

WORDS = 2**18
"""Size of the cache of words."""

CACHED_LENGTH = 32
"""Characters of the longest word in the cache. Longer ones, such as whole lines without spaces, are
rarely repeated, and most of them have skipped merges."""


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

    def decide(self) -> bool:
        """Return whether the next merge is skipped, and advance by one merge."""
        if self.left == 0:
            self.skip()
            return True
        self.left -= 1
        return False


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
        if len(word) > CACHED_LENGTH:
            return self._ids_of(self._merge(word, skips.decide))
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
        numbers = count()
        ids = self._ids_of(self._merge(word, lambda: next(numbers) in skipped))
        return Segmentation(ids, merges=next(numbers))

    def _ids_of(self, tokens: list[str]) -> tuple[int, ...]:
        ids: list[int] = []
        for token in tokens:
            known = self._ids.get(token)
            ids += [self._byte_ids[byte] for byte in token.encode()] if known is None else [known]
        return tuple(ids)

    def _merge(self, word: str, skip: Callable[[], bool]) -> list[str]:
        """Merge the characters of a word as SentencePiece does.

        The neighbors with the best score are merged first, and the left pair if scores are equal.

        Args:
            word: The word, not normalized.
            skip: Decides about each merge, in order.

        Returns:
            The tokens.
        """
        tokens = list(self._processor.normalize(word))
        after, before = list(range(1, len(tokens) + 1)), list(range(-1, len(tokens)))
        agenda: list[tuple[float, int, int, str]] = []

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
            if gone or tokens[left] + tokens[right] != merged or skip():
                continue
            tokens[left], tokens[right] = merged, ""
            after[left] = after[right]
            before[after[left]] = left
            propose(before[left], left)
            propose(left, after[left])
        return [token for token in tokens if token]


def _gaps(dropout: float, seed: int) -> Iterator[int]:
    """Yield the numbers of merges between skipped ones, endlessly."""
    random = np.random.default_rng(seed)
    while True:
        yield from (random.geometric(dropout, size=1000) - 1).tolist()
