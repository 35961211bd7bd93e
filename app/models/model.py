"""A model that is served: its readiness, its queue, and whole texts for single sentences."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cachetools import LRUCache

from app.engines.engine import (
    Alignment,
    Attention,
    Card,
    Engine,
    Limits,
    Mode,
    Pair,
    Translation,
)
from app.errors import ApiError, UnavailableError
from app.models.batcher import Batcher, Observer, Task
from app.text.sentences import Span, join, pairs, sentences

CHECK_SECONDS = 1.0
"""How often a model is asked whether it is there."""

MOST_ALTERNATIVES = 4

WARM_UP = (
    "Two men are standing on a bridge and look down at the water below them.",
    "A girl reads.",
)
"""Sentences of common lengths, in any language: the first request must not pay for the set-up."""

LONGEST_KEPT = 500
"""Characters of a sentence that the cache takes: longer ones fill memory, and rarely come again."""

logger = logging.getLogger("app")


@dataclass(frozen=True)
class Aligned:
    """A sentence and its translation, by their places in the texts, and how they align."""

    source: Span
    target: Span
    alignment: Alignment


class Model:
    """An engine under a name."""

    def __init__(
        self, name: str, engine: Engine, patience: float, cached: int, observer: Observer
    ) -> None:
        """At most `cached` translations are kept."""
        self.name = name
        self.version = ""
        self.card: Card | None = None
        self.ready = False
        self._reason = ""
        self._warm = ""  # the version that is
        self._engine = engine
        self._batcher = Batcher(engine.lanes, patience, observer)
        self._cache: LRUCache[tuple[str, str, str], Translation] = LRUCache(cached)
        self._tasks = {
            "beam": Task("beam", lambda texts: engine.translate(texts, "beam")),
            "greedy": Task("greedy", lambda texts: engine.translate(texts, "greedy")),
            "nbest": Task(
                "nbest", lambda texts: engine.translate(texts, "beam", MOST_ALTERNATIVES)
            ),
            "align": Task("align", engine.align),
            # All layers and heads of a row are megabytes: one at a time.
            "attention": Task("attention", engine.attention, most_rows=1),
        }

    @property
    def backlog(self) -> float:
        """Seconds that what is waiting will take."""
        return self._batcher.backlog

    async def watch(self) -> None:
        """Follows, for ever, whether the model is there and which version it is."""
        while True:
            await self.check()
            await asyncio.sleep(CHECK_SECONDS)

    async def check(self) -> None:
        """Asks the model whether it is there; a version that is new is read and warmed up."""
        try:
            version = await self._engine.version()
            if version != self._warm:
                self.card = await self._engine.info()
                self.version = version
                self._cache.clear()
                await self._warm_up(self.card.limits)
                self._warm = version
            self._turn(True, f"version {version} is ready")
        except ApiError as problem:
            self._turn(False, problem.message)
        except Exception as error:  # whatever a stranger answers, the watch goes on
            self._turn(False, f"is no translator of ours ({type(error).__name__})")

    async def close(self) -> None:
        """Lets go of the engine."""
        await self._engine.close()

    async def translate(
        self, texts: Sequence[str], mode: Mode, alternatives: int
    ) -> list[Translation]:
        """The texts, sentence by sentence, all of them at once."""
        card = self.require()
        spans = [sentences(text, card.source) for text in texts]
        parts = [span.of(text) for text, own in zip(texts, spans, strict=True) for span in own]
        found = iter(await self._recall("nbest" if alternatives else mode, parts))
        joined = (
            join(text, own, [_cut(next(found), alternatives) for _ in own])
            for text, own in zip(texts, spans, strict=True)
        )
        return [_cut(translation, alternatives) for translation in joined]

    async def align(self, pair: Pair) -> list[Aligned]:
        """Each sentence of a text with its translation."""
        card = self.require()
        places = pairs(pair, card.source, card.target)
        rows = [Pair(here.of(pair.text), there.of(pair.translation)) for here, there in places]
        found = await self._ask("align", rows)
        return [Aligned(*place, one) for place, one in zip(places, found, strict=True)]

    async def attention(self, pair: Pair) -> Attention:
        """The weights of all layers and heads for one sentence."""
        self.require()
        (found,) = await self._ask("attention", [pair])
        return found

    def require(self) -> Card:
        """The card of a model that is there; raises where it is not."""
        if not self.ready or self.card is None:
            raise UnavailableError(f"the model {self.name} is not ready")
        return self.card

    async def _recall(self, task: str, texts: Sequence[str]) -> list[Translation]:
        """Translations from the cache; those that are not there are asked for, and kept."""
        version = self.version
        known = {text: self._cache.get((version, task, text)) for text in texts}
        missing = [text for text, found in known.items() if found is None]
        found = dict(zip(missing, await self._ask(task, missing), strict=True))
        for text, translation in found.items():
            if self._cache.maxsize and len(text) <= LONGEST_KEPT:
                self._cache[version, task, text] = translation
        return [known[text] or found[text] for text in texts]

    async def _ask(self, task: str, rows: Sequence[Any]) -> list[Any]:
        """The engine's results, each row asked once however often it is there."""
        if not rows:
            return []
        limits = self.require().limits
        sized = {row: _pieces(row, limits) for row in rows}
        results = await self._batcher.ask(self._tasks[task], list(sized.items()))
        found = dict(zip(sized, results, strict=True))
        return [found[row] for row in rows]

    async def _warm_up(self, limits: Limits) -> None:
        for name, task in self._tasks.items():
            paired = name in ("align", "attention")
            for text in WARM_UP:
                row = Pair(text, text) if paired else text
                for rows in (1, 2 if paired else 32):
                    await self._batcher.wait_for(task, [(row, _pieces(row, limits))] * rows)

    def _turn(self, ready: bool, reason: str) -> None:
        if (ready, reason) != (self.ready, self._reason):
            logger.info("model", extra={"fields": {"model": self.name, "state": reason}})
        self.ready, self._reason = ready, reason


def _cut(translation: Translation, alternatives: int) -> Translation:
    return translation._replace(alternatives=translation.alternatives[:alternatives])


def _pieces(row: str | Pair, limits: Limits) -> int:
    """About as many as the model reads, of the longer text of a pair: what is longer, it cuts.

    The tokenizer, which only the model has, makes about one of four bytes.
    """
    text, translation = row if isinstance(row, Pair) else (row, "")
    return max(
        min(_uncut(text), limits.max_source_length),
        min(_uncut(translation), limits.max_translation_length),
    )


def _uncut(text: str) -> int:
    return 2 + len(text.encode()) // 4
