import random
import re
from collections.abc import Iterable

import pytest
import sentencepiece

from tfnmt.config import TokenizerConfig
from tfnmt.data.tokenizer import BOS, EOS, PAD, UNK, Tokenizer, train_tokenizer
from tfnmt.errors import UsageError, UserError

WORDS = ["the", "dog", "sees", "every", "cat", "and", "home", "der", "Hund", "sieht", "Katze"]

UNSEEN = {
    "emoji": "👩\u200d👩\u200d👧 👍🏽",
    "Urdu with ZWNJ": "یہ ایک آزمائش\u200cہے۔",
    "Chinese": "我们今天去公园。",
    "full-width": "Ａ１！",
    "NBSP": "10\u00a0000\u202fkm",
    "accents, both ways": "Café Cafe\u0301",
    "unseen letters": "XYZ qß",
    "line separators": "a\u2028b\x85c\x0bd",
    "tab": "a\tb",
    "special pieces as text": "<s> </s> <pad> <unk> <0x41>",
    "marks": '"quoted" – dash… 50 % & <b>',
    "empty": "",
}


def text(rows: int = 300) -> list[str]:
    draw = random.Random(1)
    return [" ".join(draw.choices(WORDS, k=draw.randint(3, 12))) for _ in range(rows)]


def trained(lines: Iterable[str], **keys: object) -> Tokenizer:
    config = TokenizerConfig.model_validate({"vocab_size": 300, **keys})
    return Tokenizer(train_tokenizer(lines, config))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return trained(text())


def there_and_back(tokenizer: Tokenizer, line: str) -> str:
    return tokenizer.decode(tokenizer.encode([line]))[0]


def bound_in(error: pytest.ExceptionInfo[UsageError], words: str) -> int:
    found = re.search(rf"{words} (\d+) do; --set tokenizer\.vocab_size=\1$", str(error.value))
    assert found is not None, error.value
    return int(found[1])


def test_the_special_ids_are_0_1_2_3(tokenizer: Tokenizer) -> None:
    model = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    assert (PAD, BOS, EOS, UNK) == (0, 1, 2, 3)
    assert [model.pad_id(), model.bos_id(), model.eos_id(), model.unk_id()] == [0, 1, 2, 3]


@pytest.mark.parametrize("line", UNSEEN.values(), ids=UNSEEN.keys())
def test_unseen_text_comes_back_as_it_was(tokenizer: Tokenizer, line: str) -> None:
    assert there_and_back(tokenizer, line) == line


@pytest.mark.parametrize("line", [*UNSEEN.values(), *text(20)])
def test_no_special_id_is_ever_part_of_a_text(tokenizer: Tokenizer, line: str) -> None:
    assert not {PAD, BOS, EOS, UNK} & set(tokenizer.encode([line])[0])


def test_only_runs_of_spaces_change(tokenizer: Tokenizer) -> None:
    assert there_and_back(tokenizer, "  the   dog \u00a0 sees  ") == "the dog \u00a0 sees"


def test_lines_are_encoded_one_by_one(tokenizer: Tokenizer) -> None:
    lines = text(5)
    assert tokenizer.encode(lines) == [tokenizer.encode([line])[0] for line in lines]
    assert tokenizer.decode(tokenizer.encode(lines)) == lines


def test_frequent_words_become_pieces(tokenizer: Tokenizer) -> None:
    bytes_and_space = len(b"the dog") + 1
    assert len(tokenizer.encode(["the dog"])[0]) < bytes_and_space


def test_nfkc_folds_what_is_compatible() -> None:
    tokenizer = trained(text(), normalization="nfkc")
    assert there_and_back(tokenizer, "Ａ１！ ﬁne") == "A1! fine"


def test_the_same_text_gives_the_same_model() -> None:
    assert trained(text()).model == trained(text()).model


@pytest.mark.parametrize("vocab_size", [300, 333])
def test_the_vocabulary_has_the_size_asked_for(vocab_size: int) -> None:
    assert trained(text(), vocab_size=vocab_size).vocab_size == vocab_size


def test_every_id_is_below_the_vocabulary_size(tokenizer: Tokenizer) -> None:
    ids = [piece for line in tokenizer.encode(list(UNSEEN.values())) for piece in line]
    assert max(ids) < tokenizer.vocab_size


def test_too_large_a_vocabulary_is_told_what_is_possible() -> None:
    with pytest.raises(UsageError, match=r"tokenizer\.vocab_size: 9,000 pieces") as caught:
        trained(text(), vocab_size=9000)
    largest = bound_in(caught, "at most")
    assert trained(text(), vocab_size=largest).vocab_size == largest
    with pytest.raises(UsageError):
        trained(text(), vocab_size=largest + 1)


def test_too_small_a_vocabulary_is_told_what_is_needed() -> None:
    characters = ["".join(map(chr, range(0x4E00, 0x4E00 + 200)))]
    with pytest.raises(UsageError, match=r"tokenizer\.vocab_size: 300 pieces") as caught:
        trained(characters)
    least = bound_in(caught, "at least")
    assert trained(characters, vocab_size=least).vocab_size == least
    with pytest.raises(UsageError):
        trained(characters, vocab_size=least - 1)


@pytest.mark.parametrize("lines", [[], [""], ["", "  "]])
def test_without_text_there_is_nothing_to_learn_from(lines: list[str]) -> None:
    with pytest.raises(UserError, match="is there text to learn from"):
        trained(lines)
