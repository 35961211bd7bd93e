"""Single sentences, one after another: a search compiled with XLA as soon as that pays."""

import time
from collections import defaultdict
from collections.abc import Callable
from functools import cached_property
from threading import Lock

import tensorflow as tf

from tfnmt.decoding.search import Hypotheses
from tfnmt.decoding.searcher import Searcher, best_hypothesis, output_projection
from tfnmt.decoding.translator import Translator
from tfnmt.model.layers import Tensor
from tfnmt.progress import log

CompiledSearch = Callable[[Tensor], Hypotheses]

LENGTH_MULTIPLE = 16
"""Sources are padded to a multiple of this, because each length is compiled separately."""

COMPILE_SECONDS = 3.0
"""Approximate time to compile the search of a small model for one length."""


class SingleSentenceSearch:
    """Searches like `Translator.search`, but faster for many single sentences in a row.

    The operations of a search are small, and calling them takes most of the time. XLA fuses them.
    Compiling takes seconds, so a length is compiled only after the searches for it have taken that
    long. A few sentences never pay for it. Batches, and calls from several threads, use the search
    without XLA, which splitting and parallel streams make the faster one for them.
    """

    def __init__(self, translator: Translator) -> None:
        self.translator = translator
        self._lock = Lock()
        self._seconds = defaultdict[int, float](float)  # spent without XLA, by padded length
        self._traced = False

    def search(self, tokens: Tensor) -> dict[str, Tensor]:
        """Map source tokens [B, S] to the outputs of `Translator.search`."""
        if len(tokens) != 1 or not self._lock.acquire(blocking=False):
            return self.translator.search(tokens)
        try:
            return self._search_single(tokens)
        finally:
            self._lock.release()

    def _search_single(self, tokens: Tensor) -> dict[str, Tensor]:
        length = -(-tokens.shape[1] // LENGTH_MULTIPLE) * LENGTH_MULTIPLE
        if self._seconds[length] <= COMPILE_SECONDS:
            return self._search_without_xla(tokens, length)
        padded = tf.pad(tokens, [[0, 0], [0, length - tokens.shape[1]]])
        return best_hypothesis(self._compiled_search(padded))

    def _search_without_xla(self, tokens: Tensor, length: int) -> dict[str, Tensor]:
        begun = time.monotonic()
        found = self.translator.search(tokens)
        if self._traced:
            self._seconds[length] += time.monotonic() - begun
        self._traced = True  # the first call traces the graph, which takes seconds as well
        if self._seconds[length] > COMPILE_SECONDS:
            log(f"compiling the search with XLA for sources of up to {length - 1} tokens")
        return found

    @cached_property
    def _compiled_search(self) -> CompiledSearch:
        return compiled_search(self.translator.searcher)


def compiled_search(searcher: Searcher) -> CompiledSearch:
    """Compile a search with XLA, separately for each shape of sources [B, S].

    The output embedding is laid out once instead of in every search, so the weights must not
    change afterwards.
    """
    output = output_projection(searcher.transformer)

    def search(source: Tensor) -> Hypotheses:
        steps = searcher.max_length(tf.shape(source)[1])
        return searcher.static_beam(source, output, steps)

    graph: CompiledSearch = tf.function(search, jit_compile=True, autograph=False)
    return graph
