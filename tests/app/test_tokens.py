from app.text.tokens import locate


def placed(pieces: list[str], text: str) -> list[str]:
    return [text[span.start : span.end] for span in locate(pieces, text)]


def test_pieces_stand_where_their_letters_are() -> None:
    pieces = ["▁Ein", "▁schön", "er", "▁Tag", ".", "</s>"]
    assert placed(pieces, "Ein schöner Tag.") == ["Ein", "schön", "er", "Tag", ".", ""]


def test_places_are_in_code_points() -> None:
    spans = locate(["▁😀", "▁é", "b", "</s>"], "😀 éb")
    assert [tuple(span) for span in spans] == [(0, 1), (2, 3), (3, 4), (4, 4)]


def test_runs_of_spaces_are_skipped() -> None:
    assert placed(["▁a", "▁b"], "  a    b") == ["a", "b"]


def test_a_piece_of_a_character_has_the_character() -> None:
    pieces = ["▁", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>", "▁a", "</s>"]
    assert placed(pieces, "😀 a") == ["", "😀", "😀", "😀", "😀", "a", ""]


def test_what_is_written_otherwise_has_an_empty_place_and_what_follows_is_found() -> None:
    assert placed(["▁fi", "sh", "▁x"], "ﬁsh x") == ["", "sh", "x"]
    half = ["▁Die", "▁1", "⁄", "2", "▁Stunde", "▁ist", "▁um", ".", "</s>"]
    assert placed(half, "Die ½ Stunde ist um.") == [
        "Die",
        "",
        "",
        "",
        "Stunde",
        "ist",
        "um",
        ".",
        "",
    ]
    assert placed(["▁a", ",", "b"], "a，b") == ["a", "", "b"]


def test_nothing_is_beyond_the_text() -> None:
    for pieces in (["▁a", "b", "c"], ["</s>"], ["▁"], ["<0xFF>"], []):
        for text in ("", "a", "é", "zzz"):
            for span in locate(pieces, text):
                assert 0 <= span.start <= span.end <= len(text)
