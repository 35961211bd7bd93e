"""The codec of LiteRT exports gives the ids of the run's tokenizer."""

from pathlib import Path

import pytest

from tfnmt.config import TokenizerConfig
from tfnmt.data.preparation.tokenizer import EOS, Tokenizer, train_tokenizer
from tfnmt.errors import UserError
from tfnmt.litert.codec import Codec

TEXT = "the old dog sees a cat"


def make(path: Path, languages: list[str]) -> tuple[Codec, Tokenizer]:
    model = train_tokenizer([TEXT] * 20, TokenizerConfig(vocab_size=280), languages)
    path.write_bytes(model)
    return Codec(path), Tokenizer(model)


def test_ids_are_those_of_the_tokenizer(tmp_path: Path) -> None:
    codec, tokenizer = make(tmp_path / "m", [])
    (ids,) = tokenizer.encode([TEXT])
    assert codec.languages == {}
    assert codec.encode(TEXT.encode(), 100).ids.tolist() == [*ids, EOS]
    truncated = codec.encode(TEXT.encode(), len(ids))
    assert truncated.ids.tolist() == [*ids[: len(ids) - 1], EOS]
    assert truncated.truncated


def test_ids_begin_with_the_token_of_the_target_language(tmp_path: Path) -> None:
    codec, tokenizer = make(tmp_path / "m", ["de", "fr"])
    (ids,) = tokenizer.encode([TEXT])
    assert codec.languages == tokenizer.language_tokens
    for language, token in tokenizer.language_tokens.items():
        assert codec.encode(TEXT.encode(), 100, language.encode()).ids.tolist() == [
            token,
            *ids,
            EOS,
        ]
        truncated = codec.encode(TEXT.encode(), 4, language.encode())
        assert truncated.ids.tolist() == [token, *ids[:2], EOS]
        assert truncated.truncated


def test_empty_text_has_no_language_token(tmp_path: Path) -> None:
    codec, _ = make(tmp_path / "m", ["de"])
    assert codec.encode(b"", 100, b"de").ids.tolist() == [EOS]


def test_unknown_language_is_an_error_that_lists_the_known_ones(tmp_path: Path) -> None:
    codec, _ = make(tmp_path / "m", ["de", "fr"])
    with pytest.raises(UserError, match=r"target=es: .* de, fr"):
        codec.encode(TEXT.encode(), 100, b"es")
