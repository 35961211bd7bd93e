"""Readiness, warm-up and cache of a model, with a fake engine."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from app.engines.engine import Mode, Pair
from app.models.batcher import Observer
from app.models.model import MAX_CACHED_CHARACTERS, Model
from tests.app.fake_engine import TWO_WAYS, FakeEngine


class BatchRecorder(Observer):
    """Records task, rows and fill of each batch."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, int, float]] = []

    def batch(self, task: str, rows: int, fill: float, seconds: float, waited: float) -> None:
        self.batches.append((task, rows, fill))


def run(
    scenario: Callable[[FakeEngine, Model], Awaitable[None]],
    max_wait: float = 5.0,
    cache_size: int = 0,
    observer: Observer | None = None,
) -> None:
    async def start() -> None:
        engine = FakeEngine()
        model = Model("a", engine, max_wait, cache_size, observer or Observer())
        await asyncio.wait_for(scenario(engine, model), 60)

    asyncio.run(start())


def test_model_is_ready_only_after_complete_warm_up() -> None:
    async def scenario(engine: FakeEngine, model: Model) -> None:
        engine.failing = {"attention"}
        for _ in range(2):  # the second check must repeat the failed warm-up
            await model.check()
            assert not model.ready
        engine.failing = set()
        await model.check()
        assert model.ready

    run(scenario)


def test_version_is_warmed_up_once() -> None:
    async def scenario(engine: FakeEngine, model: Model) -> None:
        await model.check()
        engine.calls.clear()
        await model.check()
        assert engine.calls == []
        engine.current_version = "2"
        await model.check()
        assert model.version == "2"
        assert {"info", "serving_default", "greedy", "nbest", "align"} <= set(engine.calls)

    run(scenario)


def test_new_version_is_warmed_up_despite_full_queue() -> None:
    async def scenario(engine: FakeEngine, model: Model) -> None:
        await model.check()
        engine.current_version = "2"
        engine.calls.clear()
        requests = [asyncio.create_task(translate(model, f"{n} " * 50)) for n in range(9)]
        await asyncio.sleep(0)
        assert model.backlog > 0
        await model.check()
        assert model.ready
        assert "attention" in engine.calls
        await asyncio.gather(*requests, return_exceptions=True)  # most of them are refused

    run(scenario, max_wait=0.0)


def test_reason_for_not_ready_is_logged_from_the_start(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(engine: FakeEngine, model: Model) -> None:
        engine.failing = {"info"}
        await model.check()
        await model.check()
        engine.failing = {"greedy"}
        await model.check()

    with caplog.at_level(logging.INFO, "app"):
        run(scenario)
    states = [record.fields["state"] for record in caplog.records]
    assert states == ["info fails", "greedy fails"]


async def translate(
    model: Model, text: str, mode: Mode = "beam", alternatives: int = 0, client: str = "me"
) -> str:
    (translation,) = await model.translate(client, model.split([text], 99), mode, alternatives)
    return translation.text


def test_cache_answers_repeated_text_until_it_is_evicted() -> None:
    async def scenario(engine: FakeEngine, model: Model) -> None:
        await model.check()
        engine.calls.clear()
        for text, calls in (("a", 1), ("a", 1), ("b", 2), ("a", 2), ("c", 3), ("b", 4)):
            await translate(model, text)
            assert len(engine.calls) == calls, text

    run(scenario, cache_size=2)


def test_without_cache_every_text_is_translated() -> None:
    async def scenario(engine: FakeEngine, model: Model) -> None:
        await model.check()
        engine.calls.clear()
        await translate(model, "a")
        await translate(model, "a")
        assert len(engine.calls) == 2

    run(scenario)


def test_repeated_text_in_a_request_is_translated_once() -> None:
    async def scenario(engine: FakeEngine, model: Model) -> None:
        await model.check()
        engine.calls.clear()
        translations = await model.translate("me", model.split(["a", "a"], 99), "beam", 0)
        assert [translation.text for translation in translations] == ["serving_default 1"] * 2
        assert engine.calls == ["serving_default"]

    run(scenario)


def test_simultaneous_requests_of_a_client_translate_a_text_once() -> None:
    async def scenario(engine: FakeEngine, model: Model) -> None:
        await model.check()
        engine.calls.clear()
        requests = [translate(model, "a", client=client) for client in ("one", "one", "other")]
        assert await asyncio.gather(*requests) == ["serving_default 1"] * 3
        assert engine.calls == ["serving_default"] * 2

    run(scenario)


def test_request_after_a_new_version_shares_no_result_of_the_old_one() -> None:
    async def scenario(engine: FakeEngine, model: Model) -> None:
        await model.check()
        engine.released.clear()
        engine.calls.clear()
        old = asyncio.create_task(translate(model, "a"))
        while not engine.calls:
            await asyncio.sleep(0)
        engine.current_version = "2"
        checking = asyncio.create_task(model.check())
        while model.version != "2":
            await asyncio.sleep(0)
        new = asyncio.create_task(translate(model, "a"))
        await asyncio.sleep(0)
        engine.released.set()
        assert await asyncio.gather(old, new) == ["serving_default 1", "serving_default 2"]
        await checking

    run(scenario, cache_size=9)


def test_cache_separates_clients() -> None:
    async def scenario(engine: FakeEngine, model: Model) -> None:
        await model.check()
        engine.calls.clear()
        for client, calls in (("one", 1), ("another", 2), ("one", 2)):
            await translate(model, "a", client=client)
            assert len(engine.calls) == calls, client

    run(scenario, cache_size=9)


def test_cache_separates_search_modes() -> None:
    async def scenario(engine: FakeEngine, model: Model) -> None:
        await model.check()
        for _ in range(2):
            assert await translate(model, "a") == "serving_default 1"
            assert await translate(model, "a", "greedy") == "greedy 1"
            assert await translate(model, "a", alternatives=2) == "nbest 1"

    run(scenario, cache_size=9)


def test_alternatives_that_look_identical_are_shown_once() -> None:
    async def scenario(engine: FakeEngine, model: Model) -> None:
        engine.alternatives = ["nbest\xa01", "a ?", "nbest\u202f1", "a\u202f?", "a\u200b ?", "a?"]
        await model.check()
        (translation,) = await model.translate("me", model.split(["text"], 9), "beam", 2)
        assert translation.text == "nbest 1"
        assert [other.text for other in translation.alternatives] == ["a ?", "a?"]

    run(scenario)


def test_new_version_does_not_use_cache_of_old_version() -> None:
    async def scenario(engine: FakeEngine, model: Model) -> None:
        await model.check()
        assert await translate(model, "a") == "serving_default 1"
        engine.current_version = "2"
        await model.check()
        assert await translate(model, "a") == "serving_default 2"

    run(scenario, cache_size=9)


def test_long_sentence_is_not_cached() -> None:
    async def scenario(engine: FakeEngine, model: Model) -> None:
        await model.check()
        engine.calls.clear()
        for length, calls in ((MAX_CACHED_CHARACTERS, 1), (MAX_CACHED_CHARACTERS + 1, 3)):
            for _ in range(2):
                await translate(model, "a" * length)
            assert len(engine.calls) == calls

    run(scenario, cache_size=9)


def test_truncated_text_counts_with_maximum_length() -> None:
    recorder = BatchRecorder()

    async def scenario(engine: FakeEngine, model: Model) -> None:
        await model.check()
        recorder.batches.clear()
        short, long = "word " * 20, "word " * 200
        await model.translate("me", model.split([short, long], 99), "beam", 0)
        for pair in (
            Pair(f"{short}\n{long}", f"{long}\n{short}"),
            Pair("a\na", f"{long}\n{short}"),
        ):
            await model.align("me", pair, model.pair(pair, 99))
        assert recorder.batches == [("beam", 2, 1.0), ("align", 2, 1.0), ("align", 2, 1.0)]

    run(scenario, observer=recorder)


async def check_two_ways(engine: FakeEngine, model: Model) -> None:
    """Make a model of two directions ready."""
    engine.card |= TWO_WAYS
    await model.check()
    assert model.ready
    engine.targets.clear()


def test_batch_mixes_target_languages() -> None:
    async def scenario(engine: FakeEngine, model: Model) -> None:
        await check_two_ways(engine, model)
        pairs = [("en", "de"), ("de", "en")]
        texts = [model.split(["a b"], 9, model.direction(*pair))[0] for pair in pairs]
        for mode, alternatives in ("beam", 0), ("greedy", 0), ("beam", 1):
            await model.translate("me", texts, mode, alternatives)
        assert engine.targets == [["de", "en"]] * 3

    run(scenario)


def test_align_and_attention_send_the_target_language() -> None:
    async def scenario(engine: FakeEngine, model: Model) -> None:
        await check_two_ways(engine, model)
        pair = Pair("Ein Satz.", "a sentence.", model.direction(None, "en"))
        await model.align("me", pair, model.pair(pair, 9))
        await model.attention("me", pair)
        assert engine.targets == [["en"]] * 2

    run(scenario)


def test_cache_separates_target_languages() -> None:
    async def scenario(engine: FakeEngine, model: Model) -> None:
        await check_two_ways(engine, model)
        for target in "de", "en", "de":
            texts = model.split(["a"], 9, model.direction(None, target))
            await model.translate("me", texts, "beam", 0)
        assert engine.targets == [["de"], ["en"]]

    run(scenario, cache_size=9)


def test_model_of_one_direction_gets_no_target_language() -> None:
    async def scenario(engine: FakeEngine, model: Model) -> None:
        engine.card |= {"targets": [], "directions": ["en-de"]}
        await model.check()
        await model.translate("me", model.split(["a"], 9, model.direction("en", "de")), "beam", 0)
        assert set(map(str, engine.targets)) == {"None"}

    run(scenario)
