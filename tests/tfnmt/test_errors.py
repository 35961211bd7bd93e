from tfnmt.errors import UserError


def test_problem_is_one_line_whatever_it_quotes() -> None:
    error = UserError("a\nb.en: no such file; get it", "\x1b[2J\r\t\x7f\x9b: é\u2028 is kept; go")
    assert error.problems == (
        r"a\nb.en: no such file; get it",
        "\\x1b[2J\\r\\t\\x7f\\x9b: é\u2028 is kept; go",
    )
    assert str(error) == "\n".join(error.problems)
