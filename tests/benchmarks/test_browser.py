"""The benchmark of the web page. The tests in tests/system open the page itself."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import browser
from tfnmt.errors import UserError


def test_input_without_sentences_of_this_length_is_a_user_error(
    call: Callable[..., None], tmp_path: Path
) -> None:
    if shutil.which("chromium") is None:
        pytest.skip("chromium is not installed")
    path = tmp_path / "text.en"
    path.write_text("one two three\n")
    with pytest.raises(UserError, match=r"--words=50: .*\.en has no such sentence; omit it"):
        call(browser, f"--input={path}", "--words=50")
