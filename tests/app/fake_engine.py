"""An engine that answers as it is told."""

import json
from typing import Any

from app.engines.engine import Columns, Engine
from app.errors import UnavailableError

LIMITS = {
    "max_source_length": 9, "max_translation_length": 9, "longest_trained": 9, "beam_size": 4
}  # fmt: skip


class ToldEngine(Engine):
    """Answers every signature with its version and its task, but for those that are broken."""

    lanes = 1

    def __init__(self, source: str = "en", target: str = "de") -> None:
        self.card = {"source": source, "target": target, "limits": LIMITS}
        self.now = "1"
        self.broken: set[str] = set()
        self.asked: list[str] = []

    async def call(self, signature: str, columns: Columns) -> dict[str, list[Any]]:
        self.asked.append(signature)
        if signature in self.broken:
            raise UnavailableError(f"{signature} is broken")
        rows = len(columns["text"])
        if signature == "info":
            return {"card": [json.dumps(self.card)]}
        said = f"{signature} {self.now}"
        return {
            "translation": [said] * rows, "score": [0.0] * rows, "truncated": [False] * rows,
            "translations": [[said]] * rows, "scores": [[0.0]] * rows,
            "source_pieces": [["a"]] * rows, "target_pieces": [["a"]] * rows,
            "source_length": [1] * rows, "target_length": [1] * rows,
            "token_log_probs": [[0.0]] * rows, "attention": [[[1.0]]] * rows,
            "encoder": [[[[[1.0]]]]] * rows, "decoder": [[[[[1.0]]]]] * rows,
            "cross": [[[[[1.0]]]]] * rows,
        }  # fmt: skip

    async def version(self) -> str:
        return self.now

    async def close(self) -> None:
        pass
