from pathlib import Path

import pytest

from tfnmt.errors import UserError
from tfnmt.loading.registry import find_bundle


@pytest.mark.parametrize("url", ["http://[", "http://", "https://host/.tar.gz"])
def test_invalid_url_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^--model=http"):
        find_bundle(url, tmp_path)


def test_url_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="127"):
        find_bundle("http://127.0.0.1:9/caf\udce9.tar.gz", tmp_path)
