"""Texts that come alone, one after another: their search compiled by XLA, when it is worth it."""

import time
from collections import defaultdict
from collections.abc import Callable
from functools import cached_property
from typing import Any

import tensorflow as tf

from tfnmt.decoding.output import OutputProjection, output_projection
from tfnmt.decoding.search import Hypotheses
from tfnmt.decoding.searcher import Searcher, first
from tfnmt.decoding.translator import Translator
from tfnmt.progress import say

Tensor = Any
Compiled = Callable[[Tensor], Hypotheses]

PIECES = 16
"""Sources are filled up to a multiple of it: each length that is searched is compiled."""

COMPILING = 3.0
"""Seconds that compiling for one length takes, more or less."""


class AloneTranslator:
    """`Translator.translate`, faster for texts that come one at a time and many of them.

    The operations of a search are small, and calling them takes most of the time; compiled they are
    few. It takes seconds, so it is done for a length once texts of that length have been searched
    for as long as that: whoever has a few never pays, and nobody pays more than double. Texts that
    come together go the plain way, which halves and lanes make the faster one for them.
    """

    def __init__(self, translator: Translator) -> None:
        self.translator = translator
        self._seconds = defaultdict[int, float](float)  # of plain searches, by padded length

    def translate(self, text: Tensor) -> dict[str, Tensor]:
        """What `Translator.translate` gives."""
        if len(text) != 1:
            return self.translator.translate(text)
        source = self.translator.tokenize(text)
        tokens = source["tokens"]  # [1, S]
        length = -(-tokens.shape[1] // PIECES) * PIECES
        if self._seconds[length] > COMPILING:
            padded = tf.pad(tokens, [[0, 0], [0, length - tokens.shape[1]]])
            found = first(self._search(padded))
        else:
            found = self._search_plainly(tokens, length)
        return self.translator.answer(found, source["truncated"])

    @cached_property
    def _search(self) -> Compiled:
        return compiled_search(self.translator.searcher)

    def _search_plainly(self, tokens: Tensor, length: int) -> dict[str, Tensor]:
        begun = time.monotonic()
        found = self.translator.search(tokens)
        self._seconds[length] += time.monotonic() - begun
        if self._seconds[length] > COMPILING:
            say(f"the search for texts of up to {length - 1} pieces is compiled for the next one")
        return found


def compiled_search(searcher: Searcher) -> Compiled:
    """Sources [B, S] -> hypotheses [B, K, T]; every shape of sources is compiled by itself.

    The weights are taken as they are now: the output embedding is laid out once, and not by every
    search, of one text's time a tenth.
    """
    output = [
        tf.Variable(part, trainable=False) for part in output_projection(searcher.transformer)
    ]

    def search(source: Tensor) -> Hypotheses:
        # Read here, and not by every step.
        return searcher.compilable(source, OutputProjection(*map(tf.convert_to_tensor, output)))

    graph: Compiled = tf.function(search, jit_compile=True, autograph=False)
    return graph
