import random
import re
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
import sentencepiece

from tfnmt.config import TokenizerConfig
from tfnmt.data.preparation.tokenizer import BOS, EOS, PAD, UNK, Tokenizer, train_tokenizer
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


ATOMS = [
    *(" ", "  ", "     ", "\u2581", "\u00a0", "\u3000", "\u2003", "\t", "\r", "\u2028", "\x85"),
    *("\u0301", "\u0308", "\u0345", "\u0e33", "\uff9e", "\u200b", "\u200c", "\u200d", "\u00ad"),
    *("👩", "👍🏽", "یہ", "آزمائش", "ہے۔", "한", "\u1112\u1161", "Ａ", "ﬁ", "¨", "½", "ﷺ", "…"),
    *("\ufeff", "\x00", "<s>", "</s>", "<0x41>", "a", "the", "dog", "Hund", "sieht", "Q", "7"),
]
"""Spaces of all kinds, marks that join what is beside them, and what nfkc turns into spaces."""


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


def difficult_lines(count: int) -> list[str]:
    draw = random.Random(1)
    return ["".join(draw.choices(ATOMS, k=draw.randint(0, 12))) for _ in range(count)]


def cut(flat: np.ndarray, lengths: np.ndarray) -> list[list[int]]:
    """The ids of each line."""
    ends = np.cumsum(lengths).tolist()
    assert ends[-1] == len(flat)
    return [flat[end - size : end].tolist() for end, size in zip(ends, lengths, strict=True)]


@pytest.mark.parametrize("normalization", ["identity", "nfkc"])
def test_flat_ids_are_sentencepieces_own_and_eos(normalization: str) -> None:
    """Word by word, and most words from memory: no string tells the difference."""
    marks = [
        "a\u2581b \u2581 c\u2581\u2581",
        "\u2581 the \u2581dog\u00a0a",
        "یہ ایک\u3000آزمائش ہے۔",
    ]
    tokenizer = trained([*text(), *marks * 20], normalization=normalization, vocab_size=390)
    reference = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    lines = difficult_lines(5000)
    for some in (lines, lines[:100]):  # the second time, every word has come before
        expected = [[*ids, EOS] for ids in reference.encode(some)]
        assert cut(*tokenizer.encode_flat(some)) == expected


def test_flat_ids_have_the_smallest_type_that_holds_them(tokenizer: Tokenizer) -> None:
    flat, lengths = tokenizer.encode_flat(["the dog", ""])
    assert flat.dtype == tokenizer.dtype == np.uint16
    assert lengths.tolist()[1] == 1


def test_what_is_drawn_is_a_function_of_the_seed(tokenizer: Tokenizer) -> None:
    lines = text(50)
    draws = [tokenizer.draw(lines, 0.2, seed)[0].tolist() for seed in (1, 2, 3, 1, 2, 3)]
    assert draws[:3] == draws[3:]
    assert len({tuple(draw) for draw in draws}) == 3


def test_threads_that_draw_at_once_draw_what_one_draws(tokenizer: Tokenizer) -> None:
    lines = text(50)
    seeds = [seed for seed in range(16) for _ in range(4)]
    alone = {seed: tokenizer.draw(lines, 0.2, seed)[0].tolist() for seed in set(seeds)}
    start = Barrier(8)

    def draw(turn: int) -> list[list[int]]:
        start.wait(60)
        return [tokenizer.draw(lines, 0.2, seed)[0].tolist() for seed in seeds[turn::8]]

    with ThreadPoolExecutor(8) as pool:
        for turn, drawn in enumerate(pool.map(draw, range(8))):
            assert drawn == [alone[seed] for seed in seeds[turn::8]]


def test_what_is_drawn_is_the_same_text_in_more_ids(tokenizer: Tokenizer) -> None:
    lines = [*text(100), *(line for line in UNSEEN.values() if "<" not in line)]
    plain = cut(*tokenizer.encode_flat(lines))
    drawn = cut(*tokenizer.draw(lines, 0.2, seed=1))
    assert [ids[-1] for ids in drawn] == [EOS] * len(lines)
    assert tokenizer.decode([ids[:-1] for ids in drawn]) == lines
    assert all(len(more) >= len(fewest) for more, fewest in zip(drawn, plain, strict=True))
    assert sum(map(len, drawn)) > 1.05 * sum(map(len, plain))


def test_the_more_merges_are_skipped_the_more_ids_are_drawn(tokenizer: Tokenizer) -> None:
    lines = text(100)
    counts = [len(tokenizer.draw(lines, dropout, seed=1)[0]) for dropout in (0.01, 0.1, 0.5, 0.9)]
    assert counts == sorted(set(counts))


def test_lines_of_one_draw_are_cut_differently(tokenizer: Tokenizer) -> None:
    drawn = cut(*tokenizer.draw([text(1)[0]] * 50, 0.3, seed=1))
    assert len({tuple(ids) for ids in drawn}) > 25


@pytest.mark.parametrize("normalization", ["identity", "nfkc"])
def test_where_no_merge_is_skipped_the_ids_are_sentencepieces_own(normalization: str) -> None:
    """The merges are our own: SentencePiece's sampling differs from process to process."""
    marks = [
        "a\u2581b \u2581 c\u2581\u2581",
        "\u2581 the \u2581dog\u00a0a",
        "یہ ایک\u3000آزمائش ہے۔",
    ]
    tokenizer = trained([*text(), *marks * 20], normalization=normalization, vocab_size=390)
    lines = [*difficult_lines(3000), *marks, *text(50), "aa" * 40, "thethethedogdogdog" * 9]
    drawn, lengths = tokenizer.draw(lines, 1e-15, seed=1)
    plain, plain_lengths = tokenizer.encode_flat(lines)
    np.testing.assert_array_equal(drawn, plain)
    np.testing.assert_array_equal(lengths, plain_lengths)


@pytest.mark.parametrize("dropout", [0.1, 0.5])
def test_merges_are_skipped_as_often_as_sentencepiece_skips_them(
    tokenizer: Tokenizer, dropout: float
) -> None:
    """Its draws have no seed to fix; the bound is several times what chance makes of 20,000."""
    reference = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    lines = ["the Katze sees"] * 20_000
    expected = reference.encode(
        lines, add_eos=True, enable_sampling=True, nbest_size=-1, alpha=dropout
    )
    counts = Counter(map(tuple, cut(*tokenizer.draw(lines, dropout, seed=1))))
    expected_counts = Counter(map(tuple, expected))
    seen = [ids for ids, count in expected_counts.items() if count > 200]
    assert len(seen) > 5
    for ids in seen:
        bound = 6 * (2 * expected_counts[ids]) ** 0.5
        assert abs(counts[ids] - expected_counts[ids]) < bound
    ours, theirs = (sum(len(ids) * count for ids, count in some.items())
                    for some in (counts, expected_counts))  # fmt: skip
    assert ours == pytest.approx(theirs, rel=0.01)
