"""The sentences of a text on the web page."""

import pytest

from tests.tfnmt.web.conftest import Node

SCRIPT = """
import { splitSentences } from "./sentences.js";
result = splitSentences(data);
"""


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("Dr. Smith met J. Jones, i.e. a friend.", ["Dr. Smith met J. Jones, i.e. a friend."]),
        (
            "Er kommt am 3. Mai. Sie kommt z.B. später.",
            ["Er kommt am 3. Mai.", "Sie kommt z.B. später."],
        ),
        (
            "It costs 3.50 dollars. »Really?« she asked.",
            ["It costs 3.50 dollars.", "»Really?« she asked."],
        ),
        (" a\n\nb. \r\nc", ["a", "b.", "c"]),
        ("你好。你好吗？", ["你好。", "你好吗？"]),
        ("¿Dónde? ¡Aquí! Sí…", ["¿Dónde?", "¡Aquí!", "Sí…"]),
        (" \n ", []),
    ],
)
def test_text_is_split_into_sentences(node: Node, text: str, sentences: list[str]) -> None:
    found = node(SCRIPT, text)
    assert [each["text"] for each in found] == sentences
    assert [text[each["start"] : each["end"]] for each in found] == sentences
