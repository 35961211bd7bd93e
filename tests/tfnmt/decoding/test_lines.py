"""Lines, windows, batches and segments of a translation."""

import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, count, pairwise
from queue import Queue
from threading import Barrier
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfnmt.config import DecodingConfig, ModelConfig, SamplingConfig, TokenizerConfig
from tfnmt.data.corpora.text_files import decode_lines
from tfnmt.data.preparation.tokenizer import Tokenizer, train_tokenizer
from tfnmt.decoding.lines import (
    MAX_CHARACTERS,
    MAX_ROWS,
    MISSING_SCORE,
    WINDOW,
    Hypothesis,
    Segment,
    Signature,
    Signatures,
    StreamItem,
    Translation,
    _take_available,
    best_translations,
    force_decode,
    found_translations,
    join_segments,
    length_batches,
    nbest_translations,
    read_windows,
    sampled_translations,
    sentence_splitter,
    stream_windows,
    to_ids,
    translate_lines,
    whole_line,
    with_log_probs,
)
from tfnmt.decoding.translator import Translator, signatures
from tfnmt.errors import UserError
from tfnmt.model.transformer import Transformer
from tfnmt.runtime.startup import PARALLEL_STREAMS

TIMEOUT = 20
"""Seconds to wait for something that should happen."""


def random_lines(number: int, seed: int = 1) -> list[str]:
    generator = random.Random(seed)
    return [f"{row} " + "word " * generator.randrange(30) + "end" for row in range(number)]


# --- Translating segments -------------------------------------------------------------------------

TEXTS = ["the dog runs", "a", "the cat sees a dog, and the dog sees the cat", "the dog runs home"]
SEGMENTS = [Segment((number, 0), text) for number, text in enumerate(TEXTS)]
TOKENIZER = train_tokenizer(TEXTS, TokenizerConfig(vocab_size=300))


@pytest.fixture(scope="module")
def translator() -> Translator:
    keras.utils.set_random_seed(1)
    config = ModelConfig(
        num_encoder_layers=1, num_decoder_layers=2, d_model=16, num_heads=4, d_ff=16
    )
    transformer = Transformer(config, Tokenizer(TOKENIZER).vocab_size)
    decoding = DecodingConfig(max_extra_length=6, max_source_length=20)
    return Translator(transformer, TOKENIZER, decoding)


@pytest.fixture(scope="module")
def graphs(translator: Translator) -> Signatures:
    return signatures(translator)


def constant_graph(**values: Sequence[Any]) -> Signature:
    """Return a graph that gives these outputs for any input."""
    return lambda **_: {name: tf.constant(value) for name, value in values.items()}


def test_best_translations_are_those_of_single_segments(graphs: Signatures) -> None:
    translate = best_translations(graphs["serving_default"])
    together = translate([*SEGMENTS, Segment((9, 0), "long " * 40)])
    for segment, translation in zip(SEGMENTS, together, strict=False):
        (alone,) = translate([segment])
        assert alone.best.text == translation.best.text
        assert alone.best.score == pytest.approx(translation.best.score, abs=1e-4)
        assert len(translation.hypotheses) == 1
    truncated = [translation.truncated for translation in together]
    assert truncated == [False] * len(SEGMENTS) + [True]


def test_translation_is_a_single_line() -> None:
    graph = constant_graph(translation=[b"a\nb\r\nc"], score=[-1.0], truncated=[False])
    assert best_translations(graph)(SEGMENTS[:1])[0].best.text == "a b  c"


def test_unpaired_surrogate_is_translated_as_a_question_mark(graphs: Signatures) -> None:
    surrogate, question_mark = best_translations(graphs["serving_default"])(
        [Segment((0, 0), "a \ud83d"), Segment((1, 0), "a ?")]
    )
    assert surrogate.best.text == question_mark.best.text
    assert surrogate.best.score == pytest.approx(question_mark.best.score, abs=1e-4)


def test_sample_depends_on_position_and_seed_only(
    translator: Translator, graphs: Signatures
) -> None:
    graph = translator.sampler(SamplingConfig())
    max_length = translator.decoding.max_translation_length

    def sample(*positions: tuple[int, int], seed: int = 1) -> list[str]:
        segments = [Segment(position, TEXTS[0]) for position in positions]
        translations = sampled_translations(graphs, graph, max_length, seed)(segments)
        return [translation.best.text for translation in translations]

    positions = [(0, 0), (1, 0), (0, 1), (1, 1)]
    first = sample(*positions)
    assert len(set(first)) == len(positions)
    assert sample(*reversed(positions)) == first[::-1]
    assert sample((0, 1)) == [first[2]]
    assert set(sample(*positions, seed=2)).isdisjoint(first)


# --- Force-decoded log probabilities --------------------------------------------------------------


def single_log_probs(graphs: Signatures, text: str, hypothesis: Hypothesis) -> list[float]:
    """Return the log probabilities of one hypothesis: of its ids, or of its text without ids."""
    source = tf.constant([text])
    if hypothesis.tokens is None:
        outputs = graphs["align"](text=source, translation=tf.constant([hypothesis.text]))
    else:
        tokens = graphs["tokenize"](text=source)["tokens"]
        target = to_ids([hypothesis.tokens])
        outputs = graphs["align_tokens"](tokens=tokens, target=target)
    length = int(outputs["target_length"][0])
    return list(outputs["token_log_probs"][0, :length].numpy())


def assert_own_log_probs(
    graphs: Signatures, segments: Sequence[Segment], translations: Sequence[Translation]
) -> None:
    """Check that each hypothesis has the log probabilities of its own source and text."""
    assert len(translations) == len(segments)
    for segment, translation in zip(segments, translations, strict=True):
        for hypothesis in translation.hypotheses:
            expected = single_log_probs(graphs, segment.text, hypothesis)
            np.testing.assert_allclose(hypothesis.token_log_probs, expected, atol=1e-4)


def test_force_decode_pairs_each_hypothesis_with_its_source(graphs: Signatures) -> None:
    lists = [["home"], ["a dog", "the cat", ""], ["", "runs"], ["the dog, and a cat"]]
    before = [
        Translation(tuple(Hypothesis(text, -float(rank)) for rank, text in enumerate(texts)), True)
        for texts in lists
    ]
    after = force_decode(graphs, SEGMENTS, before)
    for new, old in zip(after, before, strict=True):
        assert new.truncated
        assert [each[:2] for each in new.hypotheses] == [each[:2] for each in old.hypotheses]
    assert_own_log_probs(graphs, SEGMENTS, after)


def test_force_decode_adds_the_warnings_of_the_best_hypothesis(graphs: Signatures) -> None:
    copy = Hypothesis("the cat sees a dog, and the dog", -1.0)
    good, repetition = Hypothesis("home", -2.0), Hypothesis("home home home", -3.0)
    translations = [
        Translation((good, copy)),
        Translation((repetition,)),
        Translation((copy, good, repetition)),
        Translation((good, repetition)),
    ]
    found = force_decode(graphs, SEGMENTS, translations)
    warnings = [set(translation.warnings) & {"copy", "repetition"} for translation in found]
    assert warnings == [set(), {"repetition"}, {"copy"}, set()]


def test_force_decode_of_no_segments_is_empty(graphs: Signatures) -> None:
    assert force_decode(graphs, [], []) == []


def test_with_log_probs_adds_log_probs_to_the_translations(graphs: Signatures) -> None:
    translate = best_translations(graphs["serving_default"])
    translations = with_log_probs(translate, graphs)(SEGMENTS)
    before = [translation.best[:2] for translation in translate(SEGMENTS)]
    assert [translation.best[:2] for translation in translations] == before
    assert_own_log_probs(graphs, SEGMENTS, translations)


def test_found_translations_are_those_of_serving_default_with_their_ids(
    graphs: Signatures, translator: Translator
) -> None:
    segments = [*SEGMENTS, Segment((9, 0), "long " * 40), Segment((10, 0), "")]
    expected = best_translations(graphs["serving_default"])(segments)
    found = with_log_probs(found_translations(graphs, graphs["search"]), graphs)(segments)
    for each, other in zip(found, expected, strict=True):
        assert (each.best.text, each.truncated) == (other.best.text, other.truncated)
        assert each.best.score == pytest.approx(other.best.score, abs=1e-5)
    assert found[-1].best == Hypothesis("", 0.0, ())
    assert_own_log_probs(graphs, segments, found)
    for translation in found[:-1]:
        tokens, log_probs = translation.best[2:]
        penalty = ((5 + len(tokens)) / 6) ** translator.decoding.length_penalty
        assert sum(log_probs) / penalty == pytest.approx(translation.best.score, abs=1e-4)


# --- N-best lists ---------------------------------------------------------------------------------


def test_nbest_lists_start_with_the_best_translation_and_have_log_probs(
    graphs: Signatures,
) -> None:
    translations = nbest_translations(graphs, 3)(SEGMENTS)
    assert max(len(translation.hypotheses) for translation in translations) == 3
    best = best_translations(graphs["serving_default"])
    for segment, translation in zip(SEGMENTS, translations, strict=True):
        texts = {hypothesis.text for hypothesis in translation.hypotheses}
        assert len(texts) == len(translation.hypotheses)
        scores = [hypothesis.score for hypothesis in translation.hypotheses]
        assert scores == sorted(scores, reverse=True)
        assert translation.best.text == best([segment])[0].best.text
    assert_own_log_probs(graphs, SEGMENTS, translations)


def test_nbest_lists_do_not_contain_missing_entries(graphs: Signatures) -> None:
    nbest = constant_graph(
        translations=[
            ["dog", "the dog", "a dog"],
            ["cat", "", ""],
            ["", "the", ""],  # only the scores tell the first entry from the last one
            ["a cat sees", "home", ""],
        ],
        scores=[
            [-1.0, -2.0, -3.0],
            [-1.5, MISSING_SCORE, MISSING_SCORE],
            [-0.5, -1.0, MISSING_SCORE],
            [-2.5, -3.5, MISSING_SCORE],
        ],
        tokens=np.where(np.arange(36).reshape([4, 3, 3]) % 3 < 2, 7, 0),
        truncated=[False, True, False, False],
    )
    found = nbest_translations({**graphs, "nbest": nbest}, 3)(SEGMENTS)
    assert [[each.text for each in translation.hypotheses] for translation in found] == [
        ["dog", "the dog", "a dog"],
        ["cat"],
        ["", "the"],
        ["a cat sees", "home"],
    ]
    assert [[each.score for each in translation.hypotheses] for translation in found] == [
        [-1.0, -2.0, -3.0],
        [-1.5],
        [-0.5, -1.0],
        [-2.5, -3.5],
    ]
    assert [translation.truncated for translation in found] == [False, True, False, False]
    assert_own_log_probs(graphs, SEGMENTS, found)

    two = nbest_translations({**graphs, "nbest": nbest}, 2)(SEGMENTS)
    assert [len(translation.hypotheses) for translation in two] == [2, 1, 2, 2]


def test_nbest_lists_contain_texts_that_look_identical_once(graphs: Signatures) -> None:
    nbest = constant_graph(
        translations=[["Qui ?", "Qui\xa0?", "Qui\u202f?", "Qui?", "Q\xadui?", "Qui\u200d?"]],
        scores=[[-1.0, -2.0, -3.0, -4.0, -5.0, -6.0]],
        tokens=np.full([1, 6, 2], 7),
        truncated=[False],
    )
    (found,) = nbest_translations({**graphs, "nbest": nbest}, 3)(SEGMENTS[:1])
    shown = [(hypothesis.text, hypothesis.score) for hypothesis in found.hypotheses]
    assert shown == [("Qui ?", -1.0), ("Qui?", -4.0), ("Qui\u200d?", -6.0)]


def test_nbest_lists_contain_each_text_once(translator: Translator, graphs: Signatures) -> None:
    """Single bytes of longer characters all give U+FFFD, so some lists have fewer entries."""
    nbest = Translator(translator.transformer, TOKENIZER, DecodingConfig(max_length=1)).nbest
    translations = nbest_translations({**graphs, "nbest": nbest}, 4)(SEGMENTS)
    scores = nbest(text=tf.constant(TEXTS))["scores"].numpy()
    counts = [len(translation.hypotheses) for translation in translations]
    assert counts == (scores > MISSING_SCORE).sum(axis=1).tolist()
    assert len(set(counts)) > 1  # otherwise this test checks nothing
    assert_own_log_probs(graphs, SEGMENTS, translations)


# --- Sentences of a line --------------------------------------------------------------------------

UNUSUAL_LINES = [
    "",
    " ",
    " \t\xa0\u3000 ",
    "one",
    "  One.\t\u3000Two.  ",
    "Mr. Smith came at 3 p.m. to the U.S. embassy. He left.",
    "He paid $3.50, e.g. for tea... Really?! Yes.",
    "One.\xa0Two.\u202fThree.\u2003Four.",
    "A\u2028b. C\u2029d. E\x0bf.\x0cG\x85h.",
    "Tab.\tTab.\rReturn.",
    "שלום עולם. מה שלומך? טוב!",
    "مرحبا بالعالم. كيف حالك؟ بخير!",
    "これは文です。次の文です！三つ目？",
    "यह वाक्य है। दूसरा।",
    "😀. 👩‍👩‍👧! e\u0301. \u200bZero.\u200d",
    "\ufeffMark. \x00 Nul.",
    "\x1c\x1d. \x1e\x1f.",
    "«Oui.» «Non.» “Yes.” (No.) [Maybe.]",
    "http://a.b/c?d=e. 1. First 2. Second",
    "." * 50,
]

UNITS = [
    *"abAB.!?…。！？\"'()[]«»“”0123456789-ß \t\xa0\u3000\u2028",
    *"\u200b\u200d\u200f\x00\x0b\x0c\r\x85\ufeff",
    "Mr. ",
    "e.g. ",
    "etc. ",
    "שלום",
    "مرحبا؟ ",
    "😀",
    "e\u0301",
    "।",
    "...",
    " . ",
    "U.S. ",
]

LANGUAGES = ["en", "de", "fr", "ar", "ja", "hi", "en-US", "unknown", ""]


@pytest.mark.parametrize("language", LANGUAGES)
def test_parts_of_a_line_join_to_the_line(language: str) -> None:
    split = sentence_splitter(language)
    for line in UNUSUAL_LINES:
        parts = split(line)
        assert "".join(parts) == line
        assert all(parts)
        # White space around a segment would be translated, and lost.
        assert all(part == part.strip() or not part.strip() for part in parts)


@pytest.mark.parametrize("language", LANGUAGES)
def test_parts_of_a_random_line_join_to_the_line(language: str) -> None:
    split, generator = sentence_splitter(language), random.Random(1)
    for line in ("Vitamin A\xa0. Yes.", "A\u3000.", "A\x85."):
        assert "".join(split(line)) == line
    for _ in range(1000):
        line = "".join(generator.choices(UNITS, k=generator.randint(1, 40)))
        assert "".join(split(line)) == line


def test_sentences_end_at_their_punctuation_but_not_at_abbreviations() -> None:
    english, german = sentence_splitter("en"), sentence_splitter("de")
    assert english("Mr. Smith is here. He eats.") == ["Mr. Smith is here.", " ", "He eats."]
    assert german("Das ist z. B. Dr. Braun. Er isst.\tGut!") == [
        "Das ist z. B. Dr. Braun.",
        " ",
        "Er isst.",
        "\t",
        "Gut!",
    ]
    text = "Am 3. Oktober kam er. Gut."
    assert german(text) == ["Am 3. Oktober kam er.", " ", "Gut."]
    assert english(text) == ["Am 3.", " ", "Oktober kam er.", " ", "Gut."]
    assert english("one\ntwo") == ["one\ntwo"]
    assert sentence_splitter("ja")("猫です。犬です。") == ["猫です。", "犬です。"]
    assert sentence_splitter("unknown")("One. Two.") == ["One.", " ", "Two."]


def test_whole_line_is_its_only_part() -> None:
    assert whole_line(" One. Two. ") == [" One. Two. "]


# --- Joining segments -----------------------------------------------------------------------------


def translation(text: str, score: float, *log_probs: float, **fields: object) -> Translation:
    return Translation((Hypothesis(text, score, (7,) * len(log_probs), log_probs),), **fields)


def test_join_segments_keeps_the_white_space_between_them() -> None:
    translations = iter(
        [translation("EINS.", -1.0), translation("ZWEI.", -3.0), translation("left", 0.0)]
    )
    joined = join_segments(["  ", "One.", "\t\u3000", "Two.", " "], translations)
    assert joined.best.text == "  EINS.\t\u3000ZWEI. "
    assert next(translations).best.text == "left"  # only one translation per segment is taken


def test_join_segments_gives_a_single_line() -> None:
    translations = iter([translation("EINS.", -1.0), translation("ZWEI.", -3.0)])
    joined = join_segments(["One.", "\r\n", "Two."], translations)
    assert joined.best.text == "EINS.  ZWEI."


def test_join_segments_averages_scores_and_concatenates_log_probs() -> None:
    translations = [
        translation("A", -1.0, -0.1, -0.2),
        translation("B", -2.0, -0.3),
        translation("C", -6.0),
    ]
    joined = join_segments(["a", " ", "b", " ", "c"], iter(translations))
    assert joined.best == Hypothesis("A B C", pytest.approx(-3.0), None, (-0.1, -0.2, -0.3))
    assert joined.truncated is False


def test_join_segments_collects_each_warning_once() -> None:
    translations = [
        translation("A", 0.0, warnings=("long", "copy")),
        translation("B", 0.0, truncated=True, warnings=("short", "long")),
    ]
    joined = join_segments(["a", "b"], iter(translations))
    assert joined.warnings == ("long", "copy", "short")
    assert joined.truncated is True


def test_join_segments_keeps_all_hypotheses_of_a_single_segment() -> None:
    several = Translation((Hypothesis("A", -1.0), Hypothesis("B", -2.0)), True, ("copy",))
    assert join_segments(["a"], iter([several])) is several
    assert join_segments(["a", " "], iter([several])).hypotheses == (Hypothesis("A ", -1.0),)


@pytest.mark.parametrize("parts", [[], [" "], [" ", "\u3000"]])
def test_join_segments_of_white_space_is_empty(parts: list[str]) -> None:
    assert join_segments(parts, iter([])) == Translation()


# --- Windows of a file ----------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 1, WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW + 5])
def test_read_windows_fills_all_windows_except_the_last(number: int) -> None:
    lines = random_lines(number)
    found = list(read_windows(lines))
    assert list(chain.from_iterable(found)) == lines
    assert all(len(window) == WINDOW for window in found[:-1])
    assert all(found)


def test_read_windows_waits_for_slow_lines_and_does_not_read_ahead() -> None:
    read = 0

    def slow() -> Iterator[str]:
        nonlocal read
        for read in count(1):
            if read % 500 == 0:
                time.sleep(0.05)
            yield str(read)

    found = read_windows(slow())
    assert next(found) == [str(number) for number in range(1, WINDOW + 1)]
    assert read == WINDOW


# --- Windows of a stream --------------------------------------------------------------------------


class Pipe:
    """A pipe that a test writes to. A thread takes the windows of its lines."""

    def __init__(self) -> None:
        self.end, writer = os.pipe()
        self.writer = os.fdopen(writer, "wb", buffering=0)
        self.pool = ThreadPoolExecutor(1)
        self.windows = stream_windows(self._lines())

    def _lines(self) -> Iterator[str]:
        with os.fdopen(self.end, "rb") as reader:
            yield from decode_lines(reader, "pipe")

    def write(self, content: bytes) -> None:
        self.writer.write(content)

    def take(self) -> Future[list[str] | None]:
        return self.pool.submit(next, self.windows, None)

    def close(self) -> None:
        self.writer.close()
        self.pool.shutdown()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.close()


def test_stream_windows_gives_each_complete_line_at_once(pipe: Pipe) -> None:
    pipe.write(b"one\n")
    assert pipe.take().result(TIMEOUT) == ["one"]

    second = pipe.take()
    time.sleep(0.1)
    pipe.write(b"tw")
    time.sleep(0.1)
    assert not second.done()  # the line is incomplete
    pipe.write(b"o\n")
    assert second.result(TIMEOUT) == ["two"]

    third = pipe.take()
    pipe.write(b"without a line break")
    pipe.writer.close()
    assert third.result(TIMEOUT) == ["without a line break"]
    assert pipe.take().result(TIMEOUT) is None


@pytest.mark.parametrize(
    ("waiting", "taken"),
    [
        (["a"], 1),
        (["a", "b", "c"], 3),
        (["a", "b", None], 3),
        (["a", ValueError("b"), "c"], 2),  # nothing follows the end
        (["a"] * WINDOW, WINDOW),
        (["a"] * (WINDOW + 1), WINDOW),
    ],
)
def test_available_lines_are_taken_together_up_to_a_window_or_the_end(
    waiting: list[StreamItem], taken: int
) -> None:
    queue: Queue[StreamItem] = Queue()
    for item in waiting:
        queue.put(item)
    assert _take_available(queue) == waiting[:taken]
    assert queue.qsize() == len(waiting) - taken


def test_stream_windows_keep_the_order_and_end() -> None:
    lines = random_lines(5 * WINDOW + 7)
    found = list(stream_windows(lines))
    assert list(chain.from_iterable(found)) == lines
    assert all(0 < len(window) <= WINDOW for window in found)
    assert list(stream_windows([])) == []


def test_stream_windows_raises_a_read_error_after_the_lines_before_it() -> None:
    def broken() -> Iterator[str]:
        yield "one"
        yield "two"
        raise UserError("the disk failed")

    taken: list[str] = []
    lines = chain.from_iterable(stream_windows(broken()))
    with pytest.raises(UserError, match="the disk failed"):
        taken.extend(lines)
    assert taken == ["one", "two"]


def test_stream_windows_read_an_endless_stream_at_most_a_window_ahead() -> None:
    read = 0

    def endless() -> Iterator[str]:
        nonlocal read
        for read in count(1):
            yield str(read)

    found = stream_windows(endless())
    taken = len(next(found))
    settled = -1
    while settled != read:
        settled = read
        time.sleep(0.2)
    assert read <= taken + WINDOW + 1


# --- Batches --------------------------------------------------------------------------------------


@pytest.mark.parametrize("longest", [0, 1, 100, 255, 256, 257, 3000, 20_000])
def test_length_batches_contain_each_row_once_longest_first_within_the_limits(
    longest: int,
) -> None:
    generator = random.Random(longest)
    lengths = [generator.randint(0, longest) for _ in range(700)]
    found = list(length_batches(lengths))
    in_order = list(chain.from_iterable(found))
    assert sorted(in_order) == list(range(len(lengths)))
    assert [lengths[row] for row in in_order] == sorted(lengths, reverse=True)
    for batch in found:
        assert 1 <= len(batch) <= MAX_ROWS
        assert len(batch) == 1 or len(batch) * lengths[batch[0]] <= MAX_CHARACTERS


def test_length_batches_are_as_large_as_possible() -> None:
    def sizes(lengths: list[int]) -> list[int]:
        return [len(batch) for batch in length_batches(lengths)]

    assert sizes([3] * (2 * MAX_ROWS + 1)) == [MAX_ROWS, MAX_ROWS, 1]
    half = MAX_CHARACTERS // 2
    assert sizes([half, half, half + 1, half]) == [1, 2, 1]
    assert list(length_batches([10 * MAX_CHARACTERS, 1])) == [[0], [1]]
    assert list(length_batches([])) == []


# --- Translating lines ----------------------------------------------------------------------------


class UpperCase:
    """Translates to capitals, and records the batches."""

    def __init__(self) -> None:
        self.batches: list[list[Segment]] = []

    def __call__(self, segments: Sequence[Segment]) -> list[Translation]:
        self.batches.append(list(segments))
        return [Translation((Hypothesis(each.text.upper(), -1.0),)) for each in segments]

    @property
    def segments(self) -> list[Segment]:
        return list(chain.from_iterable(self.batches))

    @property
    def positions(self) -> dict[str, tuple[int, int]]:
        return {segment.text: segment.position for segment in self.segments}


def texts(translations: Iterable[Translation]) -> list[str]:
    return [each.best.text for each in translations]


@pytest.mark.parametrize("windows", [read_windows, stream_windows])
def test_translations_come_in_the_order_of_the_lines(
    windows: Callable[[Iterable[str]], Iterator[list[str]]],
) -> None:
    lines = random_lines(2 * WINDOW + 300)
    translator = UpperCase()
    assert texts(translate_lines(translator, windows(lines))) == [line.upper() for line in lines]
    assert len(translator.segments) == len(lines)


def test_lines_of_similar_length_are_translated_together() -> None:
    translator = UpperCase()
    list(translate_lines(translator, read_windows(random_lines(WINDOW))))
    in_order = sorted(translator.batches, key=lambda batch: -max(len(each.text) for each in batch))
    for batch, after in pairwise(in_order):
        assert min(len(each.text) for each in batch) >= max(len(each.text) for each in after)
    assert len(translator.batches) == WINDOW // MAX_ROWS


def test_few_lines_are_divided_evenly_among_the_parallel_streams() -> None:
    translator = UpperCase()
    list(translate_lines(translator, read_windows(random_lines(4 * PARALLEL_STREAMS - 1))))
    assert sorted(map(len, translator.batches)) == [3, *[4] * (PARALLEL_STREAMS - 1)]


@pytest.mark.skipif(PARALLEL_STREAMS == 1, reason="one CPU")
def test_batches_are_translated_in_parallel() -> None:
    both = Barrier(2)

    def wait_for_each_other(segments: Sequence[Segment]) -> list[Translation]:
        both.wait(TIMEOUT)
        return [Translation() for _ in segments]

    assert len(list(translate_lines(wait_for_each_other, [["one", "two"]]))) == 2


def test_error_of_a_batch_is_raised() -> None:
    def fail(segments: Sequence[Segment]) -> list[Translation]:
        raise UserError("no memory")

    with pytest.raises(UserError, match="no memory"):
        list(translate_lines(fail, read_windows(random_lines(WINDOW))))


def test_blank_lines_are_not_translated_and_give_empty_lines() -> None:
    translator = UpperCase()
    lines = ["", "one", "  ", "\t\xa0\u3000", "two", ""]
    found = list(translate_lines(translator, [lines]))
    assert texts(found) == ["", "ONE", "", "", "TWO", ""]
    assert set(translator.positions) == {"one", "two"}
    assert found[:3:2] == [Translation(), Translation(source="  ")]

    translator = UpperCase()
    assert texts(translate_lines(translator, [["", " "], []])) == ["", ""]
    assert translator.batches == []


def test_position_of_a_segment_is_the_line_number_from_the_first_line() -> None:
    lines = ["a", "", "ccc", "bb"]
    found = []
    for first_line in (0, 7):
        translator = UpperCase()
        list(translate_lines(translator, [lines, lines], first_line=first_line))
        found.append({segment.position: segment.text for segment in translator.segments})
    expected = {(0, 0): "a", (2, 0): "ccc", (3, 0): "bb", (4, 0): "a", (6, 0): "ccc", (7, 0): "bb"}
    assert found[0] == expected
    assert found[1] == {(line + 7, place): text for (line, place), text in expected.items()}


def test_segments_of_a_line_have_different_positions_and_are_joined() -> None:
    def split_at_bars(line: str) -> list[str]:
        return line.replace("|", "| |").split("|")

    translator = UpperCase()
    lines = ["one|two", "", "three|and a long four|five", "six"]
    found = texts(translate_lines(translator, [lines], split_at_bars, first_line=3))
    assert found == ["ONE TWO", "", "THREE AND A LONG FOUR FIVE", "SIX"]
    positions = translator.positions
    assert len(set(positions.values())) == len(translator.segments) == 6
    assert positions["one"][0] == positions["two"][0] == 3
    assert positions["three"] < positions["and a long four"] < positions["five"] < positions["six"]


def test_window_is_translated_before_the_next_one_is_read() -> None:
    def one_window() -> Iterator[list[str]]:
        yield ["one", "two"]
        raise AssertionError("read too far")

    translations = translate_lines(UpperCase(), one_window())
    assert [next(translations).best.text, next(translations).best.text] == ["ONE", "TWO"]
