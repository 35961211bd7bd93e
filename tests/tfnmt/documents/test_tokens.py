from tfnmt.documents.tokens import locate_tokens


def located(tokens: list[str], text: str) -> list[str]:
    return [text[span.start : span.end] for span in locate_tokens(tokens, text)]


def test_tokens_are_located_by_their_letters() -> None:
    tokens = ["▁Ein", "▁schön", "er", "▁Tag", ".", "</s>"]
    assert located(tokens, "Ein schöner Tag.") == ["Ein", "schön", "er", "Tag", ".", ""]


def test_positions_count_code_points() -> None:
    spans = locate_tokens(["▁😀", "▁é", "b", "</s>"], "😀 éb")
    assert [tuple(span) for span in spans] == [(0, 1), (2, 3), (3, 4), (4, 4)]


def test_runs_of_spaces_are_skipped() -> None:
    assert located(["▁a", "▁b"], "  a    b") == ["a", "b"]


def test_byte_tokens_get_their_whole_character() -> None:
    tokens = ["▁", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>", "▁a", "</s>"]
    assert located(tokens, "😀 a") == ["", "😀", "😀", "😀", "😀", "a", ""]


def test_normalized_tokens_get_empty_spans_and_later_tokens_are_found() -> None:
    assert located(["▁fi", "sh", "▁x"], "ﬁsh x") == ["", "sh", "x"]
    fraction = ["▁Die", "▁1", "⁄", "2", "▁Stunde", "▁ist", "▁um", ".", "</s>"]
    expected = ["Die", "", "", "", "Stunde", "ist", "um", ".", ""]
    assert located(fraction, "Die ½ Stunde ist um.") == expected
    assert located(["▁a", ",", "b"], "a，b") == ["a", "", "b"]


def test_language_token_is_not_a_part_of_the_text() -> None:
    assert located(["<2de>", "▁<2", "de>", "</s>"], "<2de>") == ["", "<2", "de>", ""]
    assert located(["▁x", "<2de>"], "x<2de>") == ["x", "<2de>"]


def test_truncated_byte_tokens_end_within_a_character() -> None:
    """The limit of a model truncates the tokens of a long text."""
    for character in ("é", "日", "😀"):
        letters = [f"<0x{byte:02X}>" for byte in character.encode()]
        for count in range(1, len(letters)):
            tokens = ["▁a", *letters, *letters[:count], "</s>"]
            expected = ["a", *[character] * (len(letters) + count), ""]
            assert located(tokens, f"a{character * 3}") == expected


def test_spans_stay_inside_the_text() -> None:
    for tokens in (["▁a", "b", "c"], ["</s>"], ["▁"], ["<0xFF>"], ["<0xC3>", "x", "</s>"], []):
        for text in ("", "a", "é", "zzz"):
            for span in locate_tokens(tokens, text):
                assert 0 <= span.start <= span.end <= len(text)
