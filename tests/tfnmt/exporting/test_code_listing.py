import re

from tfnmt.exporting.code_listing import PACKAGE, code_listing

CATALOG = PACKAGE / "web" / "js" / "explorer" / "catalog.js"


def test_listing_has_the_functions_that_the_views_name() -> None:
    lists = re.findall(r"^    code: \[(.*)\]", CATALOG.read_text(), re.MULTILINE)
    assert len(lists) == 11
    assert set(re.findall(r'"([^"]+)"', ", ".join(lists))) == set(code_listing())


def test_listing_has_the_code_of_each_function() -> None:
    for name, (file, line, code) in (
        (name, each.values()) for name, each in code_listing().items()
    ):
        assert re.match(rf"def {name.rpartition('.')[2]}\(", code)
        lines = (PACKAGE.parent / file).read_text().splitlines()
        found = lines[line - 1 : line - 1 + len(code.splitlines())]
        assert [each.strip() for each in found] == [each.strip() for each in code.splitlines()]
