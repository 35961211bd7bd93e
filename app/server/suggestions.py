"""Accepting corrections of translations."""

import asyncio
import logging
import sqlite3

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from app.engines.engine import Pair
from app.errors import ApiError
from app.models.model import Model
from app.server.request_guard import RequestGuard
from app.settings import Settings
from app.suggestions import Suggestion, SuggestionStore, clean

CLEANUP_SECONDS = 3600
"""Interval between deletions of corrections whose time is over."""

logger = logging.getLogger("app")


def open_store(settings: Settings) -> SuggestionStore | None:
    """Open the database of corrections, if there is one.

    Raises:
        UserError: The file cannot be used.
    """
    path = settings.suggestions
    return SuggestionStore(path, settings.suggestion_days) if path else None


class Suggestions:
    """Checks corrections and keeps them."""

    def __init__(self, guard: RequestGuard) -> None:
        self._guard = guard
        self._store = open_store(guard.settings)

    async def add(
        self, request: Request, model: Model, pair: Pair, correction: str, key: str | None = None
    ) -> None:
        """Keep a correction.

        Args:
            request: The request.
            model: The model whose translation is corrected.
            pair: The text, and its translation if it is known.
            correction: The better translation.
            key: The API key, if it is not in a header.

        Raises:
            ApiError: A limit is exceeded, a text is empty, or the server keeps no corrections.
        """
        if self._store is None:
            raise ApiError(403, "disabled", "suggestions: off; the server keeps none")
        self._guard.check_translations(request, pair.text, pair.translation, correction)
        if not (clean(pair.text) and clean(correction)):
            raise ApiError(422, "invalid", "text, correction: must not be empty")
        source, target, _ = pair.direction or model.require_ready().directions[0]
        texts = (pair.text, pair.translation, correction)
        suggestion = Suggestion(source, target, *texts, model.name, model.version)
        self._guard.charge(request, 0, key)
        await self._guard.run(request, run_in_threadpool(self._store.add, suggestion))

    async def clean_up(self) -> None:
        """Delete corrections whose time is over at regular intervals until canceled."""
        while self._store is not None:
            try:
                await run_in_threadpool(self._store.delete_expired)
            except sqlite3.Error as error:  # such as a full disk; the next attempt may succeed
                logger.error("suggestions", extra={"fields": {"error": type(error).__name__}})
            await asyncio.sleep(CLEANUP_SECONDS)
