import pytest

from tfnmt.progress import log


def test_log_line_cannot_change_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    log("license: \x1b]0;title\x07 \x9b2J\r\nforged: é")
    assert capsys.readouterr().err == (
        "tfnmt: license: \\x1b]0;title\\x07 \\x9b2J\\r\\nforged: é\n"
    )
