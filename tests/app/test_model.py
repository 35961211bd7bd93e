"""When a model is ready, before an engine that does as it is told."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from app.engines.engine import Mode, Pair
from app.models.batcher import Observer
from app.models.model import LONGEST_KEPT, Model
from tests.app.fake_engine import ToldEngine


class Batches(Observer):
    """Remembers how many rows each had, and how full it was."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int, float]] = []

    def batch(self, task: str, rows: int, fill: float, seconds: float, waited: float) -> None:
        self.seen.append((task, rows, fill))


def run(
    scenario: Callable[[ToldEngine, Model], Awaitable[None]],
    patience: float = 5.0,
    cached: int = 0,
    observer: Observer | None = None,
) -> None:
    async def begin() -> None:
        engine = ToldEngine()
        model = Model("a", engine, patience, cached, observer or Observer())
        await asyncio.wait_for(scenario(engine, model), 60)

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


async def said(model: Model, text: str, mode: Mode = "beam", alternatives: int = 0) -> str:
    (translation,) = await model.translate([text], mode, alternatives)
    return translation.text


def test_what_is_asked_again_comes_from_the_cache_and_what_fell_out_does_not() -> None:
    async def scenario(engine: ToldEngine, model: Model) -> None:
        await model.check()
        engine.asked.clear()
        for text, asked in (("a", 1), ("a", 1), ("b", 2), ("a", 2), ("c", 3), ("b", 4)):
            await said(model, text)
            assert len(engine.asked) == asked, text

    run(scenario, cached=2)


def test_without_a_cache_everything_is_asked() -> None:
    async def scenario(engine: ToldEngine, model: Model) -> None:
        await model.check()
        engine.asked.clear()
        await said(model, "a")
        await said(model, "a")
        assert len(engine.asked) == 2

    run(scenario)


def test_a_text_twice_in_a_request_is_asked_once() -> None:
    async def scenario(engine: ToldEngine, model: Model) -> None:
        await model.check()
        engine.asked.clear()
        translations = await model.translate(["a", "a"], "beam", 0)
        assert [translation.text for translation in translations] == ["serving_default 1"] * 2
        assert engine.asked == ["serving_default"]

    run(scenario)


def test_the_cache_keeps_ways_to_search_apart() -> None:
    async def scenario(engine: ToldEngine, model: Model) -> None:
        await model.check()
        for _ in range(2):
            assert await said(model, "a") == "serving_default 1"
            assert await said(model, "a", "greedy") == "greedy 1"
            assert await said(model, "a", alternatives=2) == "nbest 1"

    run(scenario, cached=9)


def test_a_new_version_answers_for_itself() -> None:
    async def scenario(engine: ToldEngine, model: Model) -> None:
        await model.check()
        assert await said(model, "a") == "serving_default 1"
        engine.now = "2"
        await model.check()
        assert await said(model, "a") == "serving_default 2"

    run(scenario, cached=9)


def test_a_sentence_that_is_very_long_is_not_kept() -> None:
    async def scenario(engine: ToldEngine, model: Model) -> None:
        await model.check()
        engine.asked.clear()
        for length, asked in ((LONGEST_KEPT, 1), (LONGEST_KEPT + 1, 3)):
            for _ in range(2):
                await said(model, "a" * length)
            assert len(engine.asked) == asked

    run(scenario, cached=9)


def test_what_a_model_cuts_counts_as_no_longer_than_it_reads() -> None:
    batches = Batches()

    async def scenario(engine: ToldEngine, model: Model) -> None:
        await model.check()
        batches.seen.clear()
        short, long = "word " * 20, "word " * 200
        await model.translate([short, long], "beam", 0)
        await model.align(Pair(f"{short}\n{long}", f"{long}\n{short}"))
        await model.align(Pair("a\na", f"{long}\n{short}"))
        assert batches.seen == [("beam", 2, 1.0), ("align", 2, 1.0), ("align", 2, 1.0)]

    run(scenario, observer=batches)
