"""Marks of pieces, and how they change from one piece to the next."""

from tfnmt.documents.segments import Piece, common_marks, mark_changes


def test_common_marks_are_the_outer_ones() -> None:
    assert common_marks(("a", "b", "c"), ("a", "b", "d")) == ("a", "b")
    assert common_marks(("a",), ("b", "a")) == ()


def test_marks_end_from_the_inside_and_begin_from_the_outside() -> None:
    pieces = [Piece("1", ("a", "b")), Piece("2", ("a",)), Piece("3"), Piece("4", ("b", "c"))]
    changes = [(piece.text, ending, beginning) for piece, ending, beginning in mark_changes(pieces)]
    assert changes == [
        ("1", (), [("a", False), ("b", False)]),
        ("2", ("b",), []),
        ("3", ("a",), []),
        ("4", (), [("b", True), ("c", False)]),
    ]
