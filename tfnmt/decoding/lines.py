"""Translating a stream of lines: batches of similar length, results in the order of the lines.

A line is one segment, or several if it is split into sentences. A `BatchTranslator` translates
segments: it finds the best translation, the n-best list or a sample. `with_log_probs` adds log
probabilities.
"""

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import accumulate, count, islice, pairwise
from queue import Empty, Queue
from threading import Thread
from typing import Any, NamedTuple

import numpy as np
import sentencex

from tfnmt.data.preparation.tokenizer import PAD
from tfnmt.decoding.warnings import ForcedDecoding, find_warnings
from tfnmt.runtime.startup import PARALLEL_STREAMS

Signature = Callable[..., Mapping[str, Any]]
"""Maps arrays to arrays or tensors: text [B], and further inputs, to outputs with B rows.

It is a graph of TensorFlow, or a function that runs graphs of LiteRT. This module needs neither.
"""

Signatures = Mapping[str, Signature]
"""The graphs of a model by name, the same for a run and for its export."""

MISSING_SCORE = -1e9
"""Score of the missing entries of an n-best list. All lists of a batch have the same length."""


class Hypothesis(NamedTuple):
    """One translation of a segment."""

    text: str
    score: float  # log probability divided by the length penalty
    tokens: tuple[int, ...] | None = None  # ids that the search found, with EOS if it ended
    token_log_probs: tuple[float, ...] = ()  # of these tokens, if requested


class Translation(NamedTuple):
    """The result for a line or a segment."""

    hypotheses: tuple[Hypothesis, ...] = (Hypothesis("", 0.0, ()),)  # best first
    truncated: bool = False  # whether the source was longer than the model reads
    warnings: tuple[str, ...] = ()  # quality warnings, if requested
    source: str = ""  # the line; '' for a segment

    @property
    def best(self) -> Hypothesis:
        """Return the first hypothesis. There is always one."""
        return self.hypotheses[0]

    @property
    def text(self) -> str:
        """Return the text of the best hypothesis."""
        return self.best.text

    @property
    def score(self) -> float:
        """Return the score of the best hypothesis."""
        return self.best.score


class Segment(NamedTuple):
    """A text to translate. Its position selects the random numbers of sampling."""

    position: tuple[int, int]  # line number, and number of the sentence in the line
    text: str


# --- Translating segments -------------------------------------------------------------------------

BatchTranslator = Callable[[Sequence[Segment]], list[Translation]]
"""Translates some segments together. Each result is the same as for the segment alone."""


def best_translations(translate: Signature) -> BatchTranslator:
    """Translate with a graph that returns the best translation of each text, without its ids."""

    def translate_batch(segments: Sequence[Segment]) -> list[Translation]:
        outputs = translate(text=_texts(segments))
        columns = (np.asarray(outputs[name]) for name in ("translation", "score", "truncated"))
        return [
            Translation((Hypothesis(single_line(text.decode()), float(score)),), bool(truncated))
            for text, score, truncated in zip(*columns, strict=True)
        ]

    return translate_batch


def found_translations(signatures: Signatures, search: Signature) -> BatchTranslator:
    """Return the best translation of each segment with the ids that a search found.

    Args:
        signatures: The graphs of the model.
        search: Maps source ids to the outputs of the signature `search`.
    """

    def translate_batch(segments: Sequence[Segment]) -> list[Translation]:
        source = signatures["tokenize"](text=_texts(segments))
        found = search(tokens=source["tokens"])
        text = signatures["detokenize"](tokens=found["tokens"])
        outputs = {**found, **text, "truncated": source["truncated"]}
        names = ("translation", "score", "tokens", "truncated")
        return [
            Translation((_found_hypothesis(*hypothesis),), bool(truncated))
            for *hypothesis, truncated in zip(
                *(np.asarray(outputs[name]) for name in names), strict=True
            )
        ]

    return translate_batch


def sampled_translations(
    signatures: Signatures, sample: Signature, max_length: int, seed: int
) -> BatchTranslator:
    """Sample a translation of at most `max_length` tokens for each segment.

    The random numbers depend on the seed and on the position of the segment only.
    """

    def translate_batch(segments: Sequence[Segment]) -> list[Translation]:
        numbers = [
            np.random.default_rng((seed, *segment.position)).random(max_length, "f4")
            for segment in segments
        ]
        search = partial(sample, random_numbers=np.stack(numbers))
        return found_translations(signatures, search)(segments)

    return translate_batch


def nbest_translations(signatures: Signatures, size: int) -> BatchTranslator:
    """Return the n-best list of each segment, at most `size` long, with log probabilities.

    Of hypotheses that look identical, a list contains the best one.
    """

    def translate_batch(segments: Sequence[Segment]) -> list[Translation]:
        outputs = signatures["nbest"](text=_texts(segments))
        names = ("translations", "scores", "tokens", "truncated")
        translations = [
            Translation(_found_hypotheses(*hypotheses)[:size], bool(truncated))
            for *hypotheses, truncated in zip(
                *(np.asarray(outputs[name]) for name in names), strict=True
            )
        ]
        return force_decode(signatures, segments, translations)

    return translate_batch


def with_log_probs(translator: BatchTranslator, signatures: Signatures) -> BatchTranslator:
    """Add log probabilities and quality warnings to the results of another translator."""
    return lambda segments: force_decode(signatures, segments, translator(segments))


def force_decode(
    signatures: Signatures, segments: Sequence[Segment], translations: list[Translation]
) -> list[Translation]:
    """Add the log probabilities of all tokens, and the quality warnings of the best translation.

    The tokens are the ids of the hypotheses. Without ids, they are those of the tokenized text,
    which the search may have produced from different tokens.
    """
    sources = [
        segment.text
        for segment, translation in zip(segments, translations, strict=True)
        for _ in translation.hypotheses
    ]
    targets = [each for translation in translations for each in translation.hypotheses]
    decoded = iter(force_decode_pairs(signatures, sources, targets))
    complete = []
    for segment, translation in zip(segments, translations, strict=True):
        own = [next(decoded) for _ in translation.hypotheses]
        hypotheses = tuple(
            hypothesis._replace(token_log_probs=forced.log_probs)
            for hypothesis, forced in zip(translation.hypotheses, own, strict=True)
        )
        warnings = find_warnings(segment.text, translation.best.text, own[0])
        complete.append(translation._replace(hypotheses=hypotheses, warnings=tuple(warnings)))
    return complete


def force_decode_pairs(
    signatures: Signatures, sources: Sequence[str], hypotheses: Sequence[Hypothesis]
) -> list[ForcedDecoding]:
    """Force-decode one translation of each source.

    Args:
        signatures: The graphs of the model.
        sources: The sources.
        hypotheses: Their translations. The ids are used if all of them have ids.
    """
    text = to_strings(sources)
    ids = [hypothesis.tokens for hypothesis in hypotheses if hypothesis.tokens is not None]
    if len(ids) == len(hypotheses):
        source = signatures["tokenize"](text=text)["tokens"]
        outputs = signatures["align_tokens"](tokens=source, target=to_ids(ids))
    else:
        translation = to_strings([hypothesis.text for hypothesis in hypotheses])
        outputs = signatures["align"](text=text, translation=translation)
    values = {name: np.asarray(value) for name, value in outputs.items()}
    lengths = zip(values["source_length"], values["target_length"], strict=True)
    return [
        ForcedDecoding(
            tuple(token.decode() for token in values["source_tokens"][n][:source]),
            tuple(token.decode() for token in values["target_tokens"][n][:target]),
            tuple(values["token_log_probs"][n][:target].tolist()),
            values["attention"][n][:target, :source],
        )
        for n, (source, target) in enumerate(lengths)
    ]


def _found_hypotheses(
    texts: np.ndarray, scores: np.ndarray, tokens: np.ndarray
) -> tuple[Hypothesis, ...]:
    """Return the hypotheses of an n-best list without missing entries and lookalikes."""
    distinct: dict[str, Hypothesis] = {}
    for entry in zip(texts, scores, tokens, strict=True):
        if entry[1] > MISSING_SCORE:
            hypothesis = _found_hypothesis(*entry)
            distinct.setdefault(_appearance(hypothesis.text), hypothesis)
    return tuple(distinct.values())


def _found_hypothesis(text: bytes, score: np.floating, tokens: np.ndarray) -> Hypothesis:
    ids = tuple(tokens[tokens != PAD].tolist())
    return Hypothesis(single_line(text.decode()), float(score), ids)


def _texts(segments: Sequence[Segment]) -> np.ndarray:
    return to_strings([segment.text for segment in segments])


def to_strings(texts: Sequence[str]) -> np.ndarray:
    """Convert strings to UTF-8, [B]. An unpaired surrogate becomes a question mark."""
    return np.array([text.encode(errors="replace") for text in texts], object)


def to_ids(rows: Sequence[Sequence[int]]) -> np.ndarray:
    """Convert token ids to an array [B, T], padded, with at least one column."""
    padded = np.full((len(rows), max(map(len, rows), default=0) or 1), PAD, np.int32)
    for row, ids in zip(padded, rows, strict=True):
        row[: len(ids)] = ids
    return padded


def single_line(text: str) -> str:
    """Replace line breaks with spaces. Byte tokens of a translation can spell a line break."""
    return text.replace("\n", " ").replace("\r", " ")


INVISIBLE = re.compile(r"[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]")
"""Characters without a glyph. Joiners are excluded, because they change the letters."""


def _appearance(text: str) -> str:
    """Return a key that is the same for texts that look identical."""
    return " ".join(INVISIBLE.sub("", unicodedata.normalize("NFC", text)).split())


# --- Sentences of a line --------------------------------------------------------------------------

Splitter = Callable[[str], list[str]]
"""Splits a line into its parts in order: segments, and the white space between them."""

OTHER_SPACE = re.compile(r"[^\S\t\n\r\f\v ]")
"""White space outside of ASCII."""

PART = re.compile(r"\s+|\S(?:.*\S)?", re.DOTALL)
"""White space, or text that neither starts nor ends with it."""


def whole_line(line: str) -> list[str]:
    """Return the line as its only part."""
    return [line]


def sentence_splitter(language: str) -> Splitter:
    """Return a splitter into the sentences of a language, with general rules for unknown ones."""

    def split(line: str) -> list[str]:
        # Only the lengths are used: white space other than ASCII makes sentencex 1.0.32 panic.
        sentences = sentencex.segment(language, OTHER_SPACE.sub(" ", line))
        ends = list(accumulate(map(len, sentences), initial=0))
        return [part for start, end in pairwise(ends) for part in PART.findall(line[start:end])]

    return split


def join_segments(parts: Sequence[str], translations: Iterator[Translation]) -> Translation:
    """Join the translations of a line's segments, with the white space between them.

    Args:
        parts: The parts of the line.
        translations: The translations of its segments, in order.

    Returns:
        The translation of the line. The score of several sentences is their mean, and they have
        no token ids, because the line was not searched as a whole.
    """
    translated = [next(translations) if part.strip() else None for part in parts]
    sentences = [translation for translation in translated if translation is not None]
    if not sentences:
        return Translation()
    if len(sentences) == 1 == len(parts):
        return sentences[0]
    texts = (
        single_line(part) if translation is None else translation.best.text
        for part, translation in zip(parts, translated, strict=True)
    )
    log_probs = (log_prob for each in sentences for log_prob in each.best.token_log_probs)
    score = sum(each.best.score for each in sentences) / len(sentences)
    warnings = dict.fromkeys(warning for each in sentences for warning in each.warnings)
    return Translation(
        (Hypothesis("".join(texts), score, token_log_probs=tuple(log_probs)),),
        any(each.truncated for each in sentences),
        tuple(warnings),
    )


# --- Windows of lines -----------------------------------------------------------------------------

WINDOW = 1024
"""Lines that are sorted by length together. It bounds the memory."""

StreamItem = str | Exception | None
"""A line of a stream, the error that ended it, or its end."""


def read_windows(lines: Iterable[str]) -> Iterator[list[str]]:
    """Group the lines of a file by WINDOW. The grouping is the same on every machine."""
    lines = iter(lines)
    while window := list(islice(lines, WINDOW)):
        yield window


def stream_windows(lines: Iterable[str]) -> Iterator[list[str]]:
    """Group the lines of a stream as they arrive. A line never waits for later lines."""
    queue: Queue[StreamItem] = Queue(WINDOW)
    Thread(target=_read_stream, args=(queue, lines), daemon=True).start()
    while True:
        items = _take_available(queue)
        window = [item for item in items if isinstance(item, str)]
        if window:
            yield window
        end = items[-1]
        if isinstance(end, Exception):
            raise end
        if end is None:
            return


def _read_stream(queue: Queue[StreamItem], lines: Iterable[str]) -> None:
    try:
        for line in lines:
            queue.put(line)
        queue.put(None)
    except Exception as error:  # raised again by the thread that takes the lines
        queue.put(error)


def _take_available(queue: Queue[StreamItem]) -> list[StreamItem]:
    """Take at least one item and at most a window. The end of the stream is the last item."""
    items = [queue.get()]
    while len(items) < WINDOW and isinstance(items[-1], str):
        try:
            items.append(queue.get_nowait())
        except Empty:
            break
    return items


# --- Translating lines ----------------------------------------------------------------------------

MAX_ROWS = 64
MAX_CHARACTERS = 16_384
"""Limits of a batch: rows, and rows times the characters of the longest one."""


def translate_lines(
    translator: BatchTranslator,
    windows: Iterable[list[str]],
    split: Splitter = whole_line,
    first_line: int = 0,
    min_batches: int = PARALLEL_STREAMS,
) -> Iterator[Translation]:
    """Translate the lines of some windows, in order.

    The batches of a window are translated in parallel streams. A line of white space gives an
    empty translation.

    Args:
        translator: Translates a batch of segments.
        windows: Lines, grouped by `read_windows` or `stream_windows`.
        split: Splits a line into segments.
        first_line: The number of the first line, which selects its random numbers.
        min_batches: Batches that a window of few lines is divided into. With the same number, the
            batches are the same on every machine.

    Yields:
        A translation per line.
    """
    with _parallel_streams() as streams:
        for window in windows:
            parts = [split(line) for line in window]
            segments = _segments(parts, first_line)
            lengths = [len(segment.text) for segment in segments]
            fair = math.ceil(len(segments) / min_batches)
            batches = list(length_batches(lengths, max_rows=min(fair, MAX_ROWS)))
            results = streams.map(translator, [[segments[n] for n in batch] for batch in batches])
            translations: dict[int, Translation] = {}
            for batch, result in zip(batches, results, strict=True):
                translations |= zip(batch, result, strict=True)
            in_order = (translations[n] for n in range(len(segments)))
            for line, line_parts in zip(window, parts, strict=True):
                yield join_segments(line_parts, in_order)._replace(source=line)
            first_line += len(window)


def length_batches(
    lengths: Sequence[int], max_characters: int = MAX_CHARACTERS, max_rows: int = MAX_ROWS
) -> Iterator[list[int]]:
    """Group rows of similar length. The longest come first: they need the most memory.

    Args:
        lengths: The length of each row in characters.
        max_characters: Limit of the rows of a batch times the length of its longest row.
        max_rows: Limit of the rows of a batch.

    Yields:
        The row numbers of a batch.
    """
    by_length = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    start = 0
    while start < len(by_length):
        size = max(1, min(max_rows, max_characters // max(1, lengths[by_length[start]])))
        yield by_length[start : start + size]
        start += size


def _segments(lines: Sequence[Sequence[str]], first_line: int) -> list[Segment]:
    """Return the segments of split lines, without white space."""
    return [
        Segment((number, place), part)
        for number, line in zip(count(first_line), lines, strict=False)
        for place, part in enumerate(line)
        if part.strip()
    ]


@contextmanager
def _parallel_streams() -> Iterator[Executor]:
    """Provide threads that translate batches in parallel. On exit, waiting batches are dropped."""
    streams = ThreadPoolExecutor(PARALLEL_STREAMS, "stream")
    try:
        yield streams
    finally:
        streams.shutdown(cancel_futures=True)
