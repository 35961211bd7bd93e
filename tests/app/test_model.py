"""When a model is ready, before an engine that does as it is told."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from app.engines.engine import Columns, Engine
from app.errors import UnavailableError
from app.models.batcher import Observer
from app.models.model import Model

CARD = {
    "source": "en",
    "target": "de",
    "limits": {
        "max_source_length": 9, "max_translation_length": 9, "longest_trained": 9, "beam_size": 4
    },
}  # fmt: skip


class ToldEngine(Engine):
    """Answers every signature with nothing, but for those that are broken."""

    lanes = 1

    def __init__(self) -> None:
        self.now = "1"
        self.broken: set[str] = set()
        self.asked: list[str] = []

    async def call(self, signature: str, columns: Columns) -> dict[str, list[Any]]:
        self.asked.append(signature)
        if signature in self.broken:
            raise UnavailableError(f"{signature} is broken")
        rows = len(columns["text"])
        if signature == "info":
            return {"card": [json.dumps(CARD)]}
        return {
            "translation": ["a"] * rows, "score": [0.0] * rows, "truncated": [False] * rows,
            "translations": [["a"]] * rows, "scores": [[0.0]] * rows,
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


def run(scenario: Callable[[ToldEngine, Model], Awaitable[None]], patience: float = 5.0) -> None:
    async def begin() -> None:
        engine = ToldEngine()
        await asyncio.wait_for(scenario(engine, Model("a", engine, patience, 0, Observer())), 60)

    asyncio.run(begin())


def test_a_model_is_ready_only_once_it_was_warmed_up() -> None:
    async def scenario(engine: ToldEngine, model: Model) -> None:
        engine.broken = {"attention"}
        for _ in range(2):  # the second look must not take the first for enough
            await model.check()
            assert not model.ready
        engine.broken = set()
        await model.check()
        assert model.ready

    run(scenario)


def test_a_version_is_warmed_up_once() -> None:
    async def scenario(engine: ToldEngine, model: Model) -> None:
        await model.check()
        engine.asked.clear()
        await model.check()
        assert engine.asked == []
        engine.now = "2"
        await model.check()
        assert model.version == "2"
        assert {"info", "serving_default", "greedy", "nbest", "align"} <= set(engine.asked)

    run(scenario)


def test_a_new_version_is_warmed_up_under_load_too() -> None:
    async def scenario(engine: ToldEngine, model: Model) -> None:
        await model.check()
        engine.now = "2"
        engine.asked.clear()
        crowd = [asyncio.create_task(model.translate(["word " * 50], "beam", 0)) for _ in range(9)]
        await asyncio.sleep(0)
        assert model.backlog > 0
        await model.check()
        assert model.ready
        assert "attention" in engine.asked
        await asyncio.gather(*crowd, return_exceptions=True)  # most of it is refused

    run(scenario, patience=0.0)


def test_why_a_model_is_not_ready_is_logged_from_the_beginning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(engine: ToldEngine, model: Model) -> None:
        engine.broken = {"info"}
        await model.check()
        await model.check()
        engine.broken = {"greedy"}
        await model.check()

    with caplog.at_level(logging.INFO, "app"):
        run(scenario)
    states = [record.fields["state"] for record in caplog.records]
    assert states == ["info is broken", "greedy is broken"]
