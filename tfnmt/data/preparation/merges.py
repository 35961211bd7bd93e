"""BPE's merges (Sennrich et al., 2016), some of which can be skipped (BPE-dropout).

Done here because SentencePiece's own random numbers differ from process to process. Without a
skip the pieces are those that it makes.
"""

from collections.abc import Iterator
from functools import lru_cache
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
import sentencepiece

WORDS = 2**18
"""Words whose ids are remembered."""


class Cut(NamedTuple):
    """A word in pieces."""

    ids: tuple[int, ...]
    merges: int  # how many came up, those that were skipped counted


class Skips:
    """Which merges are skipped, counted over all words that are drawn: each with the same chance.

    Drawn as the numbers of merges between two skips, so a word without one costs nothing.
    """

    def __init__(self, dropout: float, seed: int) -> None:
        self._gaps = _gaps(dropout, seed)
        self.left = next(self._gaps)  # merges that go through before the next one is skipped

    def skip(self) -> None:
        """Goes on behind the next skip."""
        self.left = next(self._gaps)


class Merger:
    """The merges of a SentencePiece BPE model."""

    def __init__(self, processor: sentencepiece.SentencePieceProcessor, first_piece: int) -> None:
        self._processor = processor
        self._byte_ids = [processor.piece_to_id(f"<0x{byte:02X}>") for byte in range(256)]
        numbers = set(range(first_piece, processor.vocab_size())) - set(self._byte_ids)
        self._ids = {processor.id_to_piece(number): number for number in numbers}
        self._costs = {piece: -processor.get_score(number) for piece, number in self._ids.items()}
        self._cut = lru_cache(maxsize=WORDS)(self._cut_word)

    def draw(self, word: str, skips: Skips) -> tuple[int, ...]:
        """The ids of a word, some merges skipped."""
        done = 0  # merges that are decided on
        skipped: tuple[int, ...] = ()
        cut = self._cut(word, skipped)
        while done + skips.left < cut.merges:
            skipped = (*skipped, done + skips.left)
            done += skips.left + 1
            skips.skip()
            cut = self._cut(word, skipped)
        skips.left -= cut.merges - done
        return cut.ids

    def _cut_word(self, word: str, skipped: tuple[int, ...]) -> Cut:
        """A word without the merges of these numbers."""
        pieces, merges = self._merge(self._processor.normalize(word), skipped)
        ids: list[int] = []
        for piece in pieces:
            known = self._ids.get(piece)
            ids += [self._byte_ids[byte] for byte in piece.encode()] if known is None else [known]
        return Cut(tuple(ids), merges)

    def _merge(self, characters: str, skipped: tuple[int, ...]) -> tuple[list[str], int]:
        """Characters merged as SentencePiece does it: always the best pair of neighbours, of
        equally good ones the left one.
        """
        pieces = list(characters)
        after, before = list(range(1, len(pieces) + 1)), list(range(-1, len(pieces)))
        agenda: list[tuple[float, int, int, str]] = []
        merges = 0

        def propose(left: int, right: int) -> None:
            if left >= 0 and right < len(pieces):
                merged = pieces[left] + pieces[right]
                if merged in self._costs:
                    heappush(agenda, (self._costs[merged], left, right, merged))

        for right in range(1, len(pieces)):
            propose(right - 1, right)
        while agenda:
            _, left, right, merged = heappop(agenda)
            gone = not (pieces[left] and pieces[right])
            if gone or pieces[left] + pieces[right] != merged:
                continue
            merges += 1
            if merges - 1 in skipped:
                continue
            pieces[left], pieces[right] = merged, ""
            after[left] = after[right]
            before[after[left]] = left
            propose(before[left], left)
            propose(left, after[left])
        return [piece for piece in pieces if piece], merges


def _gaps(dropout: float, seed: int) -> Iterator[int]:
    """How many merges go through from one that is skipped to the next, for ever."""
    random = np.random.default_rng(seed)
    while True:
        yield from (random.geometric(dropout, size=1000) - 1).tolist()
