"""A fake engine without a model, whose answers and failures a test controls."""

import asyncio
import json
from typing import Any

from app.engines.engine import Columns, Engine
from app.errors import UnavailableError

LIMITS = {
    "max_source_length": 9,
    "max_translation_length": 9,
    "longest_trained": 9,
    "beam_size": 4,
}


TWO_WAYS = {"targets": ["de", "en"], "directions": ["en-de", "de-en"]}
"""Fields of the card of a model of two directions."""


class FakeEngine(Engine):
    """Answers every signature with its name and version, except the failing ones."""

    parallel_streams = 1

    def __init__(self, source: str = "en", target: str = "de") -> None:
        self.card = {"source": source, "target": target, "limits": LIMITS}
        self.current_version = "1"
        self.failing: set[str] = set()
        self.calls: list[str] = []
        self.targets: list[list[str] | None] = []
        self.alternatives: list[str] = []
        self.released = asyncio.Event()
        """Calls, except of `info`, end only while it is set."""
        self.released.set()

    async def call(self, signature: str, columns: Columns) -> dict[str, list[Any]]:
        self.calls.append(signature)
        self.targets.append(columns.get("target"))
        if signature in self.failing:
            raise UnavailableError(f"{signature} fails")
        rows = len(columns["text"])
        if signature == "info":
            return {"card": [json.dumps(self.card)]}
        text = f"{signature} {self.current_version}"
        await self.released.wait()
        return {
            "translation": [text] * rows,
            "score": [0.0] * rows,
            "truncated": [False] * rows,
            "translations": [[text, *self.alternatives]] * rows,
            "scores": [[0.0] * (1 + len(self.alternatives))] * rows,
            "source_tokens": [["a"]] * rows,
            "target_tokens": [["a"]] * rows,
            "source_length": [1] * rows,
            "target_length": [1] * rows,
            "token_log_probs": [[0.0]] * rows,
            "attention": [[[1.0]]] * rows,
            "encoder": [[[[[1.0]]]]] * rows,
            "decoder": [[[[[1.0]]]]] * rows,
            "cross": [[[[[1.0]]]]] * rows,
        }

    async def version(self) -> str:
        return self.current_version

    async def close(self) -> None:
        pass
