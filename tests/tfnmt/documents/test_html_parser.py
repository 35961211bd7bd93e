import subprocess
import sys

from tfnmt.documents import html_parser
from tfnmt.documents.html_parser import _doctype


def test_page_is_parsed_under_lower_limits_of_the_user() -> None:
    command = f"ulimit -d 100000 && exec {sys.executable} -P {html_parser.__file__}"
    done = subprocess.run(["bash", "-c", command], input=b"<p>x</p>" * 1000, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


def test_page_that_grows_is_refused_under_every_memory_limit() -> None:
    """The parser may run out of memory in any place, and reports it in several ways."""
    page = "<section>" + "".join(f"<div><b a={n}></div>" for n in range(150)) + "<p>x</p>" * 350
    for kilobytes in range(30_000, 36_000, 250):
        command = f"ulimit -d {kilobytes} && exec {sys.executable} -P {html_parser.__file__}"
        done = subprocess.run(["bash", "-c", command], input=page.encode(), capture_output=True)
        assert done.returncode != 0, kilobytes


def test_many_comments_before_the_document_type_are_skipped_at_once() -> None:
    comments = "\ufeff " + "<!-- a -->\n<!--><!--->" * 50_000
    assert _doctype(comments + "<!DOCTYPE html><p>") == ("<!DOCTYPE html>", True)
    assert _doctype(comments + "<html>") == ("", True)
    assert _doctype(comments + "<p>") == _doctype(comments + "<!-- <html>") == ("", False)
