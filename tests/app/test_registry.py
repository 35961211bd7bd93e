"""Which of several models answers."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from app.errors import ApiError, UnavailableError
from app.models.batcher import Observer
from app.models.model import Model
from app.models.registry import Models
from tests.app.fake_engine import ToldEngine

PAIRS = {"large": ("en", "de"), "small": ("en", "de"), "back": ("de", "en")}


def run(scenario: Callable[[dict[str, ToldEngine], Models], Awaitable[None]]) -> None:
    async def begin() -> None:
        engines = {name: ToldEngine(*pair) for name, pair in PAIRS.items()}
        models = Models(
            [Model(name, engine, 5.0, 0, Observer()) for name, engine in engines.items()]
        )
        await asyncio.wait_for(scenario(engines, models), 60)
        await models.close()

    asyncio.run(begin())


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ((None, None), "large"),
        (("en", "de"), "large"),
        (("de", None), "back"),
        ((None, "en"), "back"),
        (("en", "de", "small"), "small"),
        ((None, None, "back"), "back"),
    ],
)
def test_the_name_decides_then_the_languages_then_the_order(
    asked: tuple[str | None, ...], name: str
) -> None:
    async def scenario(engines: dict[str, ToldEngine], models: Models) -> None:
        await models.start()
        assert models.find(*asked).name == name

    run(scenario)


@pytest.mark.parametrize(
    ("asked", "status", "message"),
    [
        (("en", "de", "huge"), 404, "no model has this name"),
        (("en", "fr"), 422, "there is de to en, en to de"),
        (("en", "de", "back"), 422, "there is de to en"),
    ],
)
def test_what_no_model_translates_is_told_with_what_there_is(
    asked: tuple[str, ...], status: int, message: str
) -> None:
    async def scenario(engines: dict[str, ToldEngine], models: Models) -> None:
        await models.start()
        with pytest.raises(ApiError, match=message) as problem:
            models.find(*asked)
        assert problem.value.status == status

    run(scenario)


def test_all_are_ready_or_the_server_is_not() -> None:
    async def scenario(engines: dict[str, ToldEngine], models: Models) -> None:
        engines["small"].broken = {"info"}
        await models.start()
        assert not models.ready
        assert models.find("en", "de").name == "large"
        engines["small"].broken = set()
        for model in models:
            await model.check()
        assert models.ready

    run(scenario)


def test_before_any_model_was_read_none_answers() -> None:
    async def scenario(engines: dict[str, ToldEngine], models: Models) -> None:
        with pytest.raises(UnavailableError, match="no model is ready"):
            models.find("en", "de")

    run(scenario)
