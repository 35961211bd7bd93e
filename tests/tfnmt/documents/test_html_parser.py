from tfnmt.documents.html_parser import _doctype


def test_many_comments_before_the_document_type_are_skipped_at_once() -> None:
    comments = "\ufeff " + "<!-- a -->\n<!--><!--->" * 50_000
    assert _doctype(comments + "<!DOCTYPE html><p>") == ("<!DOCTYPE html>", True)
    assert _doctype(comments + "<html>") == ("", True)
    assert _doctype(comments + "<p>") == _doctype(comments + "<!-- <html>") == ("", False)
