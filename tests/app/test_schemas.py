"""The cost of invalid requests: few errors are built, whatever the client sends."""

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from app.server.libretranslate import LibreTranslateRequest
from app.server.schemas import MAX_FIELDS, AttentionRequest, PairRequest, TranslateRequest
from app.settings import MAX_TEXTS

UNKNOWN = {f"field {number}": 1 for number in range(20_000)}


@pytest.mark.parametrize("schema", [TranslateRequest, LibreTranslateRequest])
@pytest.mark.parametrize("texts", [[1] * 60_000, ["a"] * 30_000, [[]] * 40_000, UNKNOWN])
def test_invalid_list_causes_few_errors(schema: type[BaseModel], texts: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        schema.model_validate({"text": texts, "q": texts, "target": "de"})
    assert caught.value.error_count() <= 3  # not a string, not a list of strings, unknown field


@pytest.mark.parametrize(
    "schema", [TranslateRequest, LibreTranslateRequest, PairRequest, AttentionRequest]
)
def test_unknown_fields_cause_one_error(schema: type[BaseModel]) -> None:
    with pytest.raises(ValidationError) as caught:
        schema.model_validate(UNKNOWN)
    assert caught.value.error_count() == 1
    assert str(MAX_FIELDS) in str(caught.value)


def test_longest_list_is_accepted() -> None:
    assert len(TranslateRequest.model_validate({"text": ["a"] * MAX_TEXTS}).text) == MAX_TEXTS
