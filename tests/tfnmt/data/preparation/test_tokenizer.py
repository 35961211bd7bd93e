import io
import random
import re
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from threading import Barrier

import numpy as np
import pytest
import sentencepiece
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from tfnmt.config import TokenizerConfig
from tfnmt.data.corpora.toy import grammar
from tfnmt.data.preparation import merges
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
    "special tokens as text": "<s> </s> <pad> <unk> <0x41>",
    "marks": '"quoted" – dash… 50 % & <b>',
    "empty": "",
}


ATOMS = [
    *(" ", "  ", "     ", "\u2581", "\u00a0", "\u3000", "\u2003", "\t", "\r", "\u2028", "\x85"),
    *("\u0301", "\u0308", "\u0345", "\u0e33", "\uff9e", "\u200b", "\u200c", "\u200d", "\u00ad"),
    *("👩", "👍🏽", "یہ", "آزمائش", "ہے۔", "한", "\u1112\u1161", "Ａ", "ﬁ", "¨", "½", "ﷺ", "…"),
    *("\ufeff", "\x00", "<s>", "</s>", "<0x41>", "a", "the", "dog", "Hund", "sieht", "Q", "7"),
]
"""Spaces of all kinds, joining marks, and characters that nfkc replaces with spaces."""


def text(rows: int = 300) -> list[str]:
    numbers = random.Random(1)
    return [" ".join(numbers.choices(WORDS, k=numbers.randint(3, 12))) for _ in range(rows)]


def trained(lines: Iterable[str], languages: tuple[str, ...] = (), **keys: object) -> Tokenizer:
    config = TokenizerConfig.model_validate({"vocab_size": 300, **keys})
    return Tokenizer(train_tokenizer(lines, config, languages))


LANGUAGES = ("de", "pt_BR")


@pytest.fixture(scope="module", params=[(), LANGUAGES], ids=["one target", "two targets"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return trained(text(), request.param)


@pytest.fixture(scope="module")
def multilingual() -> Tokenizer:
    """Trained on text that spells the language tokens."""
    return trained([*text(), *["<2de> the x<2de> dog", "<2pt_BR>Hund"] * 50], LANGUAGES)


def encode_and_decode(tokenizer: Tokenizer, line: str) -> str:
    return tokenizer.decode(tokenizer.encode([line]))[0]


def bound_in(error: pytest.ExceptionInfo[UsageError], words: str) -> int:
    """Return the bound of the vocabulary size that an error names."""
    found = re.search(rf"{words} (\d+); ", str(error.value))
    assert found is not None, error.value
    return int(found[1])


def size_in(error: pytest.ExceptionInfo[UsageError]) -> int:
    """Return the vocabulary size that an error recommends."""
    return int(str(error.value).rpartition("--set tokenizer.vocab_size=")[2])


def test_special_ids_are_0_1_2_3(tokenizer: Tokenizer) -> None:
    model = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    assert (PAD, BOS, EOS, UNK) == (0, 1, 2, 3)
    assert [model.pad_id(), model.bos_id(), model.eos_id(), model.unk_id()] == [0, 1, 2, 3]


@pytest.mark.parametrize("line", UNSEEN.values(), ids=UNSEEN.keys())
def test_unseen_text_survives_encoding_and_decoding(tokenizer: Tokenizer, line: str) -> None:
    assert encode_and_decode(tokenizer, line) == line


@pytest.mark.parametrize("line", [*UNSEEN.values(), *text(20)])
def test_encode_never_returns_special_ids(tokenizer: Tokenizer, line: str) -> None:
    assert not {PAD, BOS, EOS, UNK} & set(tokenizer.encode([line])[0])


def test_encoding_changes_only_runs_of_spaces(tokenizer: Tokenizer) -> None:
    assert encode_and_decode(tokenizer, "  the   dog \u00a0 sees  ") == "the dog \u00a0 sees"


def test_encode_treats_lines_independently(tokenizer: Tokenizer) -> None:
    lines = text(5)
    assert tokenizer.encode(lines) == [tokenizer.encode([line])[0] for line in lines]
    assert tokenizer.decode(tokenizer.encode(lines)) == lines


def test_frequent_words_become_tokens(tokenizer: Tokenizer) -> None:
    bytes_and_space = len(b"the dog") + 1
    assert len(tokenizer.encode(["the dog"])[0]) < bytes_and_space


def test_nfkc_replaces_compatibility_characters() -> None:
    tokenizer = trained(text(), normalization="nfkc")
    assert encode_and_decode(tokenizer, "Ａ１！ ﬁne") == "A1! fine"


def test_training_on_the_same_text_gives_the_same_model() -> None:
    assert trained(text()).model == trained(text()).model


def test_long_lines_are_part_of_the_training_text() -> None:
    """SentencePiece omits lines above 4,192 bytes by default."""
    tokenizer = trained([*text(), " ".join(["zebra"] * 1000)])
    assert len(tokenizer.encode(["zebra"])[0]) < len("zebra")


def test_model_does_not_depend_on_the_limit_of_lines() -> None:
    """Otherwise, the tokenizers of earlier runs would differ from those of their text today."""
    model = ModelProto.FromString(trained(text()).model)
    assert not model.trainer_spec.HasField("max_sentence_length")


@pytest.mark.parametrize("vocab_size", [300, 333])
def test_vocabulary_has_the_configured_size(vocab_size: int) -> None:
    assert trained(text(), vocab_size=vocab_size).vocab_size == vocab_size


def test_ids_are_below_the_vocabulary_size(tokenizer: Tokenizer) -> None:
    ids = [number for line in tokenizer.encode(list(UNSEEN.values())) for number in line]
    assert max(ids) < tokenizer.vocab_size


def test_too_large_vocabulary_error_names_the_largest_possible_size() -> None:
    with pytest.raises(UsageError, match=r"tokenizer\.vocab_size=9000: ") as caught:
        trained(text(), vocab_size=9000)
    largest = bound_in(caught, "at most")
    assert trained(text(), vocab_size=largest).vocab_size == largest
    with pytest.raises(UsageError):
        trained(text(), vocab_size=largest + 1)


def test_too_large_vocabulary_error_recommends_a_much_smaller_size() -> None:
    lines = [source for source, _ in islice(grammar.pairs("train"), 500)]
    with pytest.raises(UsageError) as caught:
        trained(lines, vocab_size=9000)
    assert size_in(caught) < bound_in(caught, "at most") / 1.5
    assert trained(lines, vocab_size=size_in(caught)).vocab_size == size_in(caught)


def test_too_small_vocabulary_error_names_the_smallest_possible_size() -> None:
    characters = ["".join(map(chr, range(0x4E00, 0x4E00 + 200)))]
    with pytest.raises(UsageError, match=r"tokenizer\.vocab_size=300: ") as caught:
        trained(characters)
    least = bound_in(caught, "at least")
    assert least == size_in(caught)
    assert trained(characters, vocab_size=least).vocab_size == least
    with pytest.raises(UsageError):
        trained(characters, vocab_size=least - 1)


@pytest.mark.parametrize("lines", [[], [""], ["", "  "]])
def test_training_without_text_is_an_error(lines: list[str]) -> None:
    with pytest.raises(UserError, match=r"^tokenizer: .*empty"):
        trained(lines)


def difficult_lines(count: int) -> list[str]:
    numbers = random.Random(1)
    return ["".join(numbers.choices(ATOMS, k=numbers.randint(0, 12))) for _ in range(count)]


def split_by_line(flat: np.ndarray, lengths: np.ndarray) -> list[list[int]]:
    """Return the ids of each line."""
    ends = np.cumsum(lengths).tolist()
    assert ends[-1] == len(flat)
    return [flat[end - size : end].tolist() for end, size in zip(ends, lengths, strict=True)]


@pytest.mark.parametrize("normalization", ["identity", "nfkc"])
def test_encode_flat_equals_sentencepiece_with_eos(normalization: str) -> None:
    """Encoding word by word from a cache must give the same ids for every string."""
    marks = [
        "a\u2581b \u2581 c\u2581\u2581",
        "\u2581 the \u2581dog\u00a0a",
        "یہ ایک\u3000آزمائش ہے۔",
    ]
    tokenizer = trained([*text(), *marks * 20], normalization=normalization, vocab_size=390)
    reference = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    lines = difficult_lines(5000)
    for some in (lines, lines[:100]):  # the second time, every word is cached
        expected = [[*ids, EOS] for ids in reference.encode(some)]
        assert split_by_line(*tokenizer.encode_flat(some)) == expected


def test_encode_flat_uses_the_smallest_integer_type(tokenizer: Tokenizer) -> None:
    flat, lengths = tokenizer.encode_flat(["the dog", ""])
    assert flat.dtype == tokenizer.dtype == np.uint16
    assert lengths.tolist()[1] == 1


def test_sample_is_a_function_of_the_seed(tokenizer: Tokenizer) -> None:
    lines = text(50)
    samples = [tokenizer.sample(lines, 0.2, seed)[0].tolist() for seed in (1, 2, 3, 1, 2, 3)]
    assert samples[:3] == samples[3:]
    assert len({tuple(sample) for sample in samples}) == 3


def test_sample_gives_the_same_result_in_concurrent_threads(tokenizer: Tokenizer) -> None:
    lines = text(50)
    seeds = [seed for seed in range(16) for _ in range(4)]
    expected = {seed: tokenizer.sample(lines, 0.2, seed)[0].tolist() for seed in set(seeds)}
    start = Barrier(8)

    def sample(turn: int) -> list[list[int]]:
        start.wait(60)
        return [tokenizer.sample(lines, 0.2, seed)[0].tolist() for seed in seeds[turn::8]]

    with ThreadPoolExecutor(8) as pool:
        for turn, sampled in enumerate(pool.map(sample, range(8))):
            assert sampled == [expected[seed] for seed in seeds[turn::8]]


def test_sample_encodes_the_same_text_in_more_ids(tokenizer: Tokenizer) -> None:
    lines = [*text(100), *(line for line in UNSEEN.values() if "<" not in line)]
    fewest = split_by_line(*tokenizer.encode_flat(lines))
    sampled = split_by_line(*tokenizer.sample(lines, 0.2, seed=1))
    assert [ids[-1] for ids in sampled] == [EOS] * len(lines)
    assert tokenizer.decode([ids[:-1] for ids in sampled]) == lines
    assert all(len(more) >= len(few) for more, few in zip(sampled, fewest, strict=True))
    assert sum(map(len, sampled)) > 1.05 * sum(map(len, fewest))


def test_sample_returns_more_ids_with_more_dropout(tokenizer: Tokenizer) -> None:
    lines = text(100)
    counts = [len(tokenizer.sample(lines, dropout, seed=1)[0]) for dropout in (0.01, 0.1, 0.5, 0.9)]
    assert counts == sorted(set(counts))


def test_sample_segments_equal_lines_differently(tokenizer: Tokenizer) -> None:
    sampled = split_by_line(*tokenizer.sample([text(1)[0]] * 50, 0.3, seed=1))
    assert len({tuple(ids) for ids in sampled}) > 25


@pytest.mark.parametrize("dropout", [1e-15, 0.1, 0.5, 1.0])
def test_sample_skips_the_same_merges_of_long_words_and_of_cached_ones(
    dropout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long words, such as lines without spaces, are segmented in one pass, short ones again."""
    lines = [*("".join(line.split()) for line in text(50)), *text(50), *difficult_lines(300)]
    assert max(map(len, lines)) > merges.CACHED_LENGTH
    model = trained(text()).model
    expected = Tokenizer(model).sample(lines, dropout, seed=1)
    for length in (0, 10**6):
        monkeypatch.setattr(merges, "CACHED_LENGTH", length)
        for values, same in zip(expected, Tokenizer(model).sample(lines, dropout, 1), strict=True):
            np.testing.assert_array_equal(values, same)


@pytest.mark.parametrize("normalization", ["identity", "nfkc"])
def test_sample_without_skipped_merges_equals_sentencepiece(normalization: str) -> None:
    """tfnmt has its own merges, because SentencePiece's sampling differs between processes."""
    marks = [
        "a\u2581b \u2581 c\u2581\u2581",
        "\u2581 the \u2581dog\u00a0a",
        "یہ ایک\u3000آزمائش ہے۔",
    ]
    tokenizer = trained([*text(), *marks * 20], normalization=normalization, vocab_size=390)
    lines = [*difficult_lines(3000), *marks, *text(50), "aa" * 40, "thethethedogdogdog" * 9]
    sampled, lengths = tokenizer.sample(lines, 1e-15, seed=1)
    expected, expected_lengths = tokenizer.encode_flat(lines)
    np.testing.assert_array_equal(sampled, expected)
    np.testing.assert_array_equal(lengths, expected_lengths)


@pytest.mark.parametrize("dropout", [0.1, 0.5])
def test_sample_skips_merges_as_often_as_sentencepiece(
    tokenizer: Tokenizer, dropout: float
) -> None:
    """SentencePiece's sampling has no seed. The bound is several standard deviations wide."""
    reference = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    lines = ["the Katze sees"] * 20_000
    expected = reference.encode(
        lines, add_eos=True, enable_sampling=True, nbest_size=-1, alpha=dropout
    )
    counts = Counter(map(tuple, split_by_line(*tokenizer.sample(lines, dropout, seed=1))))
    expected_counts = Counter(map(tuple, expected))
    seen = [ids for ids, count in expected_counts.items() if count > 200]
    assert len(seen) > 5
    for ids in seen:
        bound = 6 * (2 * expected_counts[ids]) ** 0.5
        assert abs(counts[ids] - expected_counts[ids]) < bound
    ours, theirs = (
        sum(len(ids) * count for ids, count in found.items()) for found in (counts, expected_counts)
    )
    assert ours == pytest.approx(theirs, rel=0.01)


# --- Language tokens ------------------------------------------------------------------------------


def test_language_tokens_follow_the_other_special_tokens(multilingual: Tokenizer) -> None:
    assert multilingual.language_tokens == {"de": UNK + 1, "pt_BR": UNK + 2}
    assert multilingual.tokens()[UNK + 1 : UNK + 3] == ["<2de>", "<2pt_BR>"]
    assert multilingual.vocab_size == 300


def test_a_single_direction_has_no_language_tokens() -> None:
    lines = [*text(), *["<2de> the dog"] * 50]
    assert trained(lines).language_tokens == {}
    assert trained(lines).source_prefix("de") == []
    assert trained(lines).tokens()[UNK + 1] == "<0x00>"


def test_source_prefix_is_the_language_token_of_the_target(multilingual: Tokenizer) -> None:
    prefix = multilingual.source_prefix("pt_BR")
    assert prefix == [UNK + 2]
    flat, lengths = multilingual.encode_flat(["the dog", ""], prefix)
    (ids,) = multilingual.encode(["the dog"])
    assert split_by_line(flat, lengths) == [[UNK + 2, *ids, EOS], [UNK + 2, EOS]]


def test_unknown_target_language_is_refused(multilingual: Tokenizer) -> None:
    with pytest.raises(UserError, match=r"no language token for fr, only for de, pt_BR"):
        multilingual.source_prefix("fr")


def test_language_tokens_have_no_text(multilingual: Tokenizer) -> None:
    (ids,) = multilingual.encode(["the dog"])
    assert multilingual.decode([[UNK + 1, *ids, UNK + 2]]) == ["the dog"]


SPELLINGS = st.sampled_from(["<2de>", "<2pt_BR>", "<2", "de>", " ", "the"])


@settings(max_examples=300, derandomize=True, deadline=None)
@given(parts=st.lists(SPELLINGS | st.text()), dropout=st.sampled_from([1e-15, 0.5]))
@example(parts=["<2de>"], dropout=1e-15)
@example(parts=["<2de> the x<2de> dog <2pt_BR>Hund"], dropout=0.5)
def test_no_text_produces_a_language_token(
    multilingual: Tokenizer, parts: list[str], dropout: float
) -> None:
    line = "".join(parts).encode(errors="replace").decode().replace("\n", " ")
    control = {PAD, BOS, EOS, *multilingual.language_tokens.values()}
    encodings = [multilingual.encode([line])[0], multilingual.encode_flat([line])[0][:-1].tolist()]
    assert encodings[0] == encodings[1]
    sampled = multilingual.sample([line], dropout, seed=1)[0][:-1].tolist()
    words = line.replace("\u2581", " ").split(" ")  # runs of spaces and the space mark change
    for ids in (encodings[0], sampled):
        assert control.isdisjoint(ids)
        assert [w for w in multilingual.decode([ids])[0].split(" ") if w] == [w for w in words if w]


# --- Damaged models -------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"nonsense", bytes(100)])
def test_damaged_model_is_a_user_error(content: bytes) -> None:
    with pytest.raises(UserError, match=r"^tokenizer\.model: "):
        Tokenizer(content)


def test_truncated_model_is_a_user_error() -> None:
    model = train_tokenizer(["rest sets", "test trees"] * 20, TokenizerConfig(vocab_size=280))
    with pytest.raises(UserError, match=r"^tokenizer\.model: "):
        Tokenizer(model[:-1])


def test_model_with_other_special_ids_is_refused() -> None:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["rest sets", "test trees"] * 20),
        model_writer=model,
        model_type="bpe",
        vocab_size=20,
        minloglevel=2,
    )
    with pytest.raises(UserError, match=r"^tokenizer\.model: made by another program"):
        Tokenizer(model.getvalue())
