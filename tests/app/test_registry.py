"""Selection of a model for a request."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from app.errors import ApiError, UnavailableError
from app.models.batcher import Observer
from app.models.model import Model
from app.models.registry import ModelRegistry
from tests.app.fake_engine import TWO_WAYS, FakeEngine

PAIRS = {"large": ("en", "de"), "small": ("en", "de"), "back": ("de", "en")}


def run(scenario: Callable[[dict[str, FakeEngine], ModelRegistry], Awaitable[None]]) -> None:
    async def start() -> None:
        engines = {name: FakeEngine(*pair) for name, pair in PAIRS.items()}
        models = ModelRegistry(
            [Model(name, engine, 5.0, 0, Observer()) for name, engine in engines.items()]
        )
        await asyncio.wait_for(scenario(engines, models), 60)
        await models.close()

    asyncio.run(start())


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ((None, None), "large"),
        (("en", "de"), "large"),
        (("de", None), "back"),
        ((None, "en"), "back"),
        (("en", "de", "small"), "small"),
        ((None, None, "back"), "back"),
    ],
)
def test_find_uses_name_then_languages_then_order(query: tuple[str | None, ...], name: str) -> None:
    async def scenario(engines: dict[str, FakeEngine], models: ModelRegistry) -> None:
        await models.start()
        assert models.find(*query).name == name

    run(scenario)


@pytest.mark.parametrize(
    ("query", "status", "code", "available"),
    [
        (("en", "de", "huge"), 404, "no_such_model", "/api/v1/models"),
        (("en", "fr"), 422, "unsupported_languages", ": de to en, en to de$"),
        (("en", "de", "back"), 422, "unsupported_languages", ": de to en$"),
    ],
)
def test_find_error_names_available_languages(
    query: tuple[str, ...], status: int, code: str, available: str
) -> None:
    async def scenario(engines: dict[str, FakeEngine], models: ModelRegistry) -> None:
        await models.start()
        with pytest.raises(ApiError, match=available) as caught:
            models.find(*query)
        assert (caught.value.status, caught.value.code) == (status, code)

    run(scenario)


@pytest.mark.parametrize(
    ("query", "name"), [(("de", "en"), "large"), (("en", "de"), "large"), ((None, "en"), "large")]
)
def test_find_uses_all_directions_of_a_model(query: tuple[str | None, str], name: str) -> None:
    async def scenario(engines: dict[str, FakeEngine], models: ModelRegistry) -> None:
        engines["large"].card |= TWO_WAYS
        await models.start()
        assert models.find(*query).name == name

    run(scenario)


def test_find_refuses_a_direction_without_training_data() -> None:
    async def scenario(engines: dict[str, FakeEngine], models: ModelRegistry) -> None:
        directions = ["en-de", "en-fr", "fr-en"]
        engines["large"].card |= {"targets": ["de", "en", "fr"], "directions": directions}
        await models.start()
        with pytest.raises(ApiError, match=r": en to de, en to fr, fr to en$"):
            models.find("fr", "de", "large")

    run(scenario)


def test_registry_is_ready_when_all_models_are() -> None:
    async def scenario(engines: dict[str, FakeEngine], models: ModelRegistry) -> None:
        engines["small"].failing = {"info"}
        await models.start()
        assert not models.ready
        assert models.find("en", "de").name == "large"
        engines["small"].failing = set()
        for model in models:
            await model.check()
        assert models.ready

    run(scenario)


def test_find_fails_before_any_model_card_is_read() -> None:
    async def scenario(engines: dict[str, FakeEngine], models: ModelRegistry) -> None:
        with pytest.raises(UnavailableError, match="no model is ready"):
            models.find("en", "de")

    run(scenario)
