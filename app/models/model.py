"""A served model: readiness, queue, cache, and translation of whole texts by sentence."""

import asyncio
import logging
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from cachetools import LRUCache

from app.engines.engine import (
    Alignment,
    Attention,
    Direction,
    Engine,
    Limits,
    Mode,
    ModelCard,
    Pair,
    Sentence,
    Translation,
)
from app.errors import ApiError, UnavailableError
from app.models.batcher import Batcher, Observer, Task
from app.text.sentences import SplitText, join_translations, pair_sentences
from tfnmt.documents.sentences import Span, split_sentences

CHECK_SECONDS = 1.0
"""Interval between readiness checks of a model."""

MAX_ALTERNATIVES = 4

WARM_UP = (
    "Two men are standing on a bridge and look down at the water below them.",
    "A girl reads.",
)
"""Warm-up sentences of common lengths, so that the first request does not pay for the set-up. The
language does not matter."""

MAX_CACHED_CHARACTERS = 500
"""Maximum length of a sentence in the cache. Longer ones take memory and are rarely repeated."""

logger = logging.getLogger("app")


@dataclass(frozen=True)
class AlignedSentence:
    """Alignment of a sentence with its translation, and their positions in the whole texts."""

    source: Span
    target: Span
    alignment: Alignment


class Model:
    """A named engine with a queue and a cache."""

    def __init__(
        self, name: str, engine: Engine, max_wait: float, cache_size: int, observer: Observer
    ) -> None:
        """Create a model that is not ready; `check` makes it ready.

        Args:
            name: Name of the model in the API.
            engine: Runs the model.
            max_wait: Seconds of queued work above which requests are refused.
            cache_size: Maximum number of sentences in the cache.
            observer: Receives measurements of batches.
        """
        self.name = name
        self.version = ""
        self.card: ModelCard | None = None
        self.ready = False
        self._state = ""
        self._warm_version = ""
        self._engine = engine
        self._observer = observer
        self._batcher = Batcher(engine.parallel_streams, max_wait, observer)
        # Each client has entries of its own: a fast answer must not tell a client what the others
        # have translated.
        self._cache: LRUCache[tuple[Hashable, str, str, Sentence], Translation] = LRUCache(
            cache_size
        )
        self._tasks = {
            "beam": Task("beam", lambda rows: engine.translate(rows, "beam")),
            "greedy": Task("greedy", lambda rows: engine.translate(rows, "greedy")),
            "nbest": Task("nbest", lambda rows: engine.translate(rows, "beam", MAX_ALTERNATIVES)),
            "align": Task("align", engine.align),
            # The weights of all layers and heads of a row take megabytes: one row per batch.
            "attention": Task("attention", engine.attention, max_rows=1),
        }

    @property
    def backlog(self) -> float:
        """Estimated seconds until the queue is empty."""
        return self._batcher.backlog

    @property
    def cached_sentences(self) -> int:
        """Number of sentences in the cache."""
        return len(self._cache)

    async def watch(self) -> None:
        """Check the model at regular intervals until canceled."""
        while True:
            await self.check()
            await asyncio.sleep(CHECK_SECONDS)

    async def check(self) -> None:
        """Update readiness and version. If the version is new, read its card and warm it up."""
        try:
            version = await self._engine.version()
            if version != self._warm_version:
                self.card = await self._engine.info()
                self.version = version
                self._cache.clear()
                self._batcher.stop_sharing()
                await self._warm_up(self.card)
                self._warm_version = version
            self._set_state(True, f"version {version} is ready")
        except ApiError as error:
            self._set_state(False, error.message)
        except Exception as error:  # another server may answer anything; keep checking
            self._set_state(False, f"not a tfnmt model ({type(error).__name__})")

    async def close(self) -> None:
        """Close the engine."""
        await self._engine.close()

    def direction(self, source: str | None, target: str | None) -> Direction | None:
        """Return the first direction with these languages, if there is one; None means any."""
        return self.card.find(source, target) if self.card else None

    def split(
        self, texts: Sequence[str], max_sentences: int, direction: Direction | None = None
    ) -> list[SplitText]:
        """Return the texts with the positions of their sentences.

        Args:
            texts: The texts.
            max_sentences: Maximum number of sentences in all texts.
            direction: Their direction; None for the first one of the model.

        Raises:
            ApiError: The model is not ready or there are too many sentences.
        """
        card = self.require_ready()
        direction = direction or card.directions[0]
        split_texts = []
        left = max_sentences + 1  # one more sentence shows that there are too many
        for text in texts:
            spans = split_sentences(text, direction.source, left)
            split_texts.append(SplitText(text, spans, direction))
            left -= len(spans)
        if not left:
            raise _too_many(max_sentences)
        return split_texts

    def pair(self, pair: Pair, max_sentences: int) -> list[tuple[Span, Span]]:
        """Return the positions of each sentence of a text and of its translation.

        Raises:
            ApiError: The model is not ready or there are too many sentences.
        """
        card = self.require_ready()
        source, target, _ = pair.direction or card.directions[0]
        spans = pair_sentences(pair, source, target, max_sentences + 1)
        if len(spans) > max_sentences:
            raise _too_many(max_sentences)
        return spans

    async def translate(
        self, client: Hashable, texts: Sequence[SplitText], mode: Mode, alternatives: int
    ) -> list[Translation]:
        """Translate texts by sentence, all sentences at once.

        Args:
            client: The client that sent the texts.
            texts: Texts of any length, from `split`.
            mode: The search algorithm.
            alternatives: Maximum number of alternatives per text.

        Returns:
            One translation per text, with line breaks and white space unchanged.

        Raises:
            ApiError: The model is not ready or the queue is full.
        """
        task = "nbest" if alternatives else mode
        parts = [sentence for text in texts for sentence in text.sentences()]
        remaining = iter(await self._translate_cached(client, task, parts))
        joined = (
            join_translations(text, spans, [_limit(next(remaining), alternatives) for _ in spans])
            for text, spans, _ in texts
        )
        return [_limit(translation, alternatives) for translation in joined]

    async def align(
        self, client: Hashable, pair: Pair, spans: Sequence[tuple[Span, Span]]
    ) -> list[AlignedSentence]:
        """Align each sentence of a text with its translation.

        Args:
            client: The client that sent the text.
            pair: The text and its translation.
            spans: Their sentences, from `pair`.
        """
        rows = [
            Pair(source.of(pair.text), target.of(pair.translation), pair.direction)
            for source, target in spans
        ]
        alignments = await self._run(client, "align", rows)
        return [
            AlignedSentence(source, target, alignment)
            for (source, target), alignment in zip(spans, alignments, strict=True)
        ]

    async def translate_sentences(
        self, client: Hashable, sentences: Sequence[Sentence], mode: Mode
    ) -> list[Translation]:
        """Translate single sentences.

        Raises:
            ApiError: The model is not ready or the queue is full.
        """
        return await self._translate_cached(client, mode, sentences)

    async def align_sentences(self, client: Hashable, pairs: Sequence[Pair]) -> list[Alignment]:
        """Align single sentences with their translations.

        Raises:
            ApiError: The model is not ready or the queue is full.
        """
        return await self._run(client, "align", pairs)

    async def attention(self, client: Hashable, pair: Pair) -> Attention:
        """Return the attention weights of all layers and heads for one sentence."""
        self.require_ready()
        (attention,) = await self._run(client, "attention", [pair])
        return attention

    def require_ready(self) -> ModelCard:
        """Return the model card; raise UnavailableError if the model is not ready."""
        if not self.ready or self.card is None:
            raise UnavailableError(f"the model {self.name} is not ready")
        return self.card

    async def _translate_cached(
        self, client: Hashable, task: str, rows: Sequence[Sentence]
    ) -> list[Translation]:
        """Translate sentences; use and update the client's part of the cache."""
        version = self.version
        cached = {row: self._cache.get((client, version, task, row)) for row in rows}
        missing = [row for row, translation in cached.items() if translation is None]
        self._observer.lookups(len(cached) - len(missing), len(missing))
        computed = dict(zip(missing, await self._run(client, task, missing), strict=True))
        for row, translation in computed.items():
            if self._cache.maxsize and len(row.text) <= MAX_CACHED_CHARACTERS:
                self._cache[client, version, task, row] = translation
        return [cached[row] or computed[row] for row in rows]

    async def _run(self, client: Hashable, task: str, rows: Sequence[Any]) -> list[Any]:
        """Return the results of a task; identical rows are computed once."""
        if not rows:
            return []
        limits = self.require_ready().limits
        lengths = {row: _estimate_tokens(row, limits) for row in rows}
        results = await self._batcher.submit(client, self._tasks[task], list(lengths.items()))
        by_row = dict(zip(lengths, results, strict=True))
        return [by_row[row] for row in rows]

    async def _warm_up(self, card: ModelCard) -> None:
        direction = card.directions[0]
        for name, task in self._tasks.items():
            paired = name in ("align", "attention")
            for text in WARM_UP:
                row = Pair(text, text, direction) if paired else Sentence(text, direction)
                sized_row = (row, _estimate_tokens(row, card.limits))
                for count in (1, 2 if paired else 32):
                    await self._batcher.submit_regardless(None, task, [sized_row] * count)

    def _set_state(self, ready: bool, state: str) -> None:
        if (ready, state) != (self.ready, self._state):
            logger.info("model", extra={"fields": {"model": self.name, "state": state}})
        self.ready, self._state = ready, state


def _too_many(max_sentences: int) -> ApiError:
    return ApiError(422, "too_many", f"text: more than {max_sentences} sentences")


def _limit(translation: Translation, alternatives: int) -> Translation:
    return translation._replace(alternatives=translation.alternatives[:alternatives])


def _estimate_tokens(row: Sentence | Pair, limits: Limits) -> int:
    """Estimate the tokens of a text, or of the longer text of a pair, after truncation.

    The tokenizer, which only the model has, makes about one token of four bytes.
    """
    translation = row.translation if isinstance(row, Pair) else ""
    return max(
        min(_estimate_untruncated(row.text), limits.max_source_length),
        min(_estimate_untruncated(translation), limits.max_translation_length),
    )


def _estimate_untruncated(text: str) -> int:
    return 2 + len(text.encode()) // 4
