import json
from collections.abc import Callable

import pytest

from benchmarks import styled_document


@pytest.mark.parametrize("target", ["de", "fr"])
def test_no_style_of_a_document_is_lost(
    target: str, call: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    call(styled_document, "--pages=2", f"--target={target}")
    result = json.loads(capsys.readouterr().out)
    assert result["runs"] > 150
    assert result["lost"] == result["without_words"] == result["added"] == 0
    assert result["same_text"] == result["paragraphs"] == 16
