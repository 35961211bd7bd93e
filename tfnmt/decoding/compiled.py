"""Texts that come alone, one after another: their search compiled by XLA, when it is worth it."""

import time
from collections import defaultdict
from collections.abc import Callable
from functools import cached_property
from threading import Lock

import tensorflow as tf

from tfnmt.decoding.search import Hypotheses
from tfnmt.decoding.searcher import Searcher, first, output_projection
from tfnmt.decoding.translator import Translator
from tfnmt.model.layers import Tensor
from tfnmt.progress import say

Compiled = Callable[[Tensor], Hypotheses]

PIECES = 16
"""Sources are filled up to a multiple of it: each length that is searched is compiled."""

COMPILING = 3.0
"""Seconds that compiling for one length takes, more or less, where the model is small."""


class AloneTranslator:
    """`Translator.translate`, faster for texts that come one at a time and many of them.

    The operations of a search are small, and calling them takes most of the time; compiled they are
    fewer. It takes seconds, so it is done for a length once texts of that length have been searched
    for as long as that: whoever has a few never pays. Texts that come together, in a batch or from
    several threads, go the plain way, which halves and lanes make the faster one for them.
    """

    def __init__(self, translator: Translator) -> None:
        self.translator = translator
        self._turn = Lock()
        self._seconds = defaultdict[int, float](float)  # spent plainly, by padded length
        self._ready = False

    def translate(self, text: Tensor) -> dict[str, Tensor]:
        """What `Translator.translate` gives."""
        if len(text) != 1 or not self._turn.acquire(blocking=False):
            return self.translator.translate(text)
        try:
            return self._translate_alone(text)
        finally:
            self._turn.release()

    def _translate_alone(self, text: Tensor) -> dict[str, Tensor]:
        source = self.translator.tokenize(text)
        tokens = source["tokens"]  # [1, S]
        length = -(-tokens.shape[1] // PIECES) * PIECES
        if self._seconds[length] <= COMPILING:
            return self._translate_plainly(text, length)
        padded = tf.pad(tokens, [[0, 0], [0, length - tokens.shape[1]]])
        return self.translator.answer(first(self._search(padded)), source["truncated"])

    def _translate_plainly(self, text: Tensor, length: int) -> dict[str, Tensor]:
        begun = time.monotonic()
        translation = self.translator.translate(text)
        if self._ready:
            self._seconds[length] += time.monotonic() - begun
        self._ready = True  # The first text has the plain graph made, which takes seconds as well.
        if self._seconds[length] > COMPILING:
            say(f"the search for texts of up to {length - 1} pieces is compiled for the next one")
        return translation

    @cached_property
    def _search(self) -> Compiled:
        return compiled_search(self.translator.searcher)


def compiled_search(searcher: Searcher) -> Compiled:
    """Sources [B, S] -> hypotheses [B, K, T]; every shape of sources is compiled by itself.

    The output embedding is laid out once, and not by every search: it must not change any more.
    """
    output = output_projection(searcher.transformer)

    def search(source: Tensor) -> Hypotheses:
        return searcher.compilable(source, output)

    graph: Compiled = tf.function(search, jit_compile=True, autograph=False)
    return graph
