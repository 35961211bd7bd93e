"""The tokenizer of the web page has the ids of SentencePiece."""

import random
from itertools import islice
from pathlib import Path

import pytest
import sentencepiece

from tests.tfnmt.web.conftest import Node
from tfnmt.config import TokenizerConfig
from tfnmt.data.corpora.toy import grammar
from tfnmt.data.preparation.tokenizer import train_tokenizer

TEXTS = 10_000

# Scripts, symbols, control characters, marks, and characters that normalization replaces.
BLOCKS = [
    (0x20, 0x7E),
    (0xA0, 0x24F),
    (0x370, 0x3FF),
    (0x400, 0x4FF),
    (0x590, 0x5FF),
    (0x600, 0x6FF),
    (0x900, 0x97F),
    (0xE00, 0xE7F),
    (0x1100, 0x11FF),
    (0x3040, 0x30FF),
    (0x4E00, 0x9FFF),
    (0xAC00, 0xD7A3),
    (0x300, 0x36F),
    (0x0, 0x1F),
    (0x2000, 0x206F),
    (0x2581, 0x2581),
    (0x2100, 0x218F),
    (0xE000, 0xFFFF),
    (0x1F300, 0x1FAFF),
]

SCRIPT = """
import { Tokenizer } from "./tokenizer.js";
const tokenizer = new Tokenizer(new Uint8Array(readFileSync(data.model)));
result = {
  encoded: data.texts.map((text) => tokenizer.encode(text)),
  decoded: data.ids.map((ids) => tokenizer.decodeSpans(ids)),
  languages: tokenizer.languages,
};
"""


@pytest.fixture(scope="module", params=["identity", "nfkc"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    lines = [text for pair in islice(grammar.pairs("train"), 1500) for text in pair]
    config = TokenizerConfig(vocab_size=500, normalization=request.param)
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.model"
    path.write_bytes(train_tokenizer([*lines, "ﬁne Ⅷ x² ㍿"], config, ["de", "en"]))
    return path


def make_texts(processor: sentencepiece.SentencePieceProcessor) -> list[str]:
    """Return texts of known tokens, runs of spaces, and characters of all blocks."""
    generator = random.Random(7)
    tokens = [processor.id_to_piece(number) for number in range(262, processor.vocab_size())]

    def part() -> str:
        kind = generator.random()
        if kind < 0.5:
            return generator.choice(tokens).replace("▁", " ")
        if kind < 0.6:
            return " " * generator.randint(1, 3)
        first, last = generator.choice(BLOCKS)
        return "".join(chr(generator.randint(first, last)) for _ in range(generator.randint(1, 5)))

    return ["".join(part() for _ in range(generator.randint(0, 12))) for _ in range(TEXTS)]


def test_ids_and_texts_are_those_of_sentencepiece(node: Node, model: Path) -> None:
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    texts = make_texts(processor)
    generator = random.Random(8)
    size = processor.vocab_size()
    # Half of the tokens are bytes, which seldom are valid UTF-8.
    ids = [
        [generator.choice([generator.randrange(size), generator.randrange(6, 262)]) for _ in text]
        for text in texts
    ]
    found = node(SCRIPT, {"model": str(model), "texts": texts, "ids": ids})
    assert [each["ids"] for each in found["encoded"]] == processor.encode(texts)
    assert [each["text"] for each in found["decoded"]] == processor.decode(ids)
    assert found["languages"] == {"de": 4, "en": 5}


def part_of(text: str, span: tuple[int, int]) -> str:
    """Return a span of a text, in UTF-16 units."""
    start, end = span
    return text.encode("utf-16-le")[2 * start : 2 * end].decode("utf-16-le")


def test_spans_are_the_text_of_each_token(node: Node, model: Path) -> None:
    texts = ["The  old dog sleeps. ", " 𝒳y 犬\tdogs ", ""]
    ids = sentencepiece.SentencePieceProcessor(model_file=str(model)).encode(texts)
    found = node(SCRIPT, {"model": str(model), "texts": texts, "ids": ids})
    for text, encoded, decoded in zip(texts, found["encoded"], found["decoded"], strict=True):
        spans = dict.fromkeys(map(tuple, encoded["spans"]))  # the bytes of a character share one
        parts = "".join(part_of(text, span) for span in spans)
        assert parts.replace(" ", "") == text.replace(" ", "")
        spans = dict.fromkeys(map(tuple, decoded["spans"]))
        assert "".join(part_of(decoded["text"], span) for span in spans) == decoded["text"]
