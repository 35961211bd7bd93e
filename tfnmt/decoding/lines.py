"""Many lines through a translator: in batches of like length, answers in the order of the lines."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import accumulate, count, islice, pairwise
from queue import Empty, Queue
from threading import Thread
from typing import NamedTuple

import numpy as np
import sentencex
import tensorflow as tf

from tfnmt.decoding.warnings import Reading, find_warnings
from tfnmt.model.layers import Tensor
from tfnmt.runtime.startup import LANES

Signature = Callable[..., dict[str, Tensor]]
"""A graph: text [B], and what else it asks for, to tensors of B rows."""

Signatures = Mapping[str, Signature]
"""Those of a model by their names, the same for a run and for its export."""

MISSING = -1e9
"""The score of a hypothesis that was not found: the lists of an n-best answer are equally long."""


class Hypothesis(NamedTuple):
    """A translation."""

    text: str
    score: float  # log probability over length penalty
    token_log_probs: tuple[float, ...] = ()  # of its pieces and eos, where they were asked for


class Answer(NamedTuple):
    """What comes of a line."""

    hypotheses: tuple[Hypothesis, ...] = (Hypothesis("", 0.0),)  # the best first
    truncated: bool = False  # whether the line was longer than is read
    warnings: tuple[str, ...] = ()  # what looks wrong, where it was looked for

    @property
    def best(self) -> Hypothesis:
        """The first hypothesis; there is always one."""
        return self.hypotheses[0]


class Row(NamedTuple):
    """A text to translate; its place decides what is drawn for it."""

    place: tuple[int, int]  # line, and sentence of the line
    text: str


def one_line(text: str) -> str:
    """A line's translation is a line: byte pieces can spell a line break."""
    return text.replace("\n", " ").replace("\r", " ")


Answering = Callable[[Sequence[Row]], list[Answer]]
"""Translates some rows together; each answer is that of its row alone."""


def best(translate: Signature) -> Answering:
    """The best translation of each row."""

    def answer(rows: Sequence[Row]) -> list[Answer]:
        return _single(translate(text=_texts(rows)))

    return answer


def sampled(sample: Signature, longest: int, seed: int) -> Answering:
    """A translation of `longest` pieces at most drawn for each row, by its place and the seed."""

    def answer(rows: Sequence[Row]) -> list[Answer]:
        draws = [np.random.default_rng((seed, *row.place)).random(longest, "f4") for row in rows]
        return _single(sample(text=_texts(rows), draws=tf.constant(np.stack(draws))))

    return answer


def several(signatures: Signatures, count: int) -> Answering:
    """The `count` best translations of each row, as far as there are so many, read once more."""

    def answer(rows: Sequence[Row]) -> list[Answer]:
        answer = signatures["nbest"](text=_texts(rows))
        found = {name: value.numpy() for name, value in answer.items()}
        lists = [
            [Hypothesis(one_line(text.decode()), float(score))
             for text, score in zip(*both, strict=True) if score > MISSING][:count]
            for both in zip(found["translations"], found["scores"], strict=True)
        ]  # fmt: skip
        return read_again(
            signatures["align"],
            rows,
            [Answer(tuple(each), bool(cut))
             for each, cut in zip(lists, found["truncated"], strict=True)],
        )  # fmt: skip

    return answer


def again(answering: Answering, align: Signature) -> Answering:
    """What another way answers, read once more."""
    return lambda rows: read_again(align, rows, answering(rows))


def read_again(align: Signature, rows: Sequence[Row], answers: list[Answer]) -> list[Answer]:
    """The answers with the log probabilities of all pieces, and with what looks wrong in the best.

    The pieces are those that the text is cut into, which now and then are not those it was put
    together from.
    """
    owners = [n for n, answer in enumerate(answers) for _ in answer.hypotheses]
    readings = iter(_read(
        align,
        [rows[owner].text for owner in owners],
        [hypothesis.text for answer in answers for hypothesis in answer.hypotheses],
    ))  # fmt: skip
    complete = []
    for row, answer in zip(rows, answers, strict=True):
        own = [next(readings) for _ in answer.hypotheses]
        hypotheses = tuple(
            hypothesis._replace(token_log_probs=reading.log_probs)
            for hypothesis, reading in zip(answer.hypotheses, own, strict=True)
        )
        warnings = find_warnings(row.text, answer.best.text, own[0])
        complete.append(answer._replace(hypotheses=hypotheses, warnings=tuple(warnings)))
    return complete


def _read(align: Signature, texts: list[str], translations: list[str]) -> list[Reading]:
    found = align(text=to_tensor(texts), translation=to_tensor(translations))
    values = {name: value.numpy() for name, value in found.items()}
    return [
        Reading(
            tuple(piece.decode() for piece in values["source_pieces"][n][:source]),
            tuple(piece.decode() for piece in values["target_pieces"][n][:target]),
            tuple(values["token_log_probs"][n][:target].tolist()),
            values["attention"][n][:target, :source],
        )
        for n, (source, target) in enumerate(
            zip(values["source_length"], values["target_length"], strict=True)
        )
    ]


def _single(found: dict[str, Tensor]) -> list[Answer]:
    columns = (found[name].numpy() for name in ("translation", "score", "truncated"))
    return [
        Answer((Hypothesis(one_line(text.decode()), float(score)),), bool(truncated))
        for text, score, truncated in zip(*columns, strict=True)
    ]


def _texts(rows: Sequence[Row]) -> Tensor:
    return to_tensor([row.text for row in rows])


def to_tensor(texts: list[str]) -> Tensor:
    """Strings as TensorFlow has them, [B]; half of a surrogate pair becomes a question mark."""
    return tf.constant([text.encode(errors="replace") for text in texts], tf.string)


Split = Callable[[str], list[str]]
"""A line -> its parts in order: texts to translate, and white space between them."""

OTHER_SPACE = re.compile(r"[^\S\t\n\r\f\v ]")
PART = re.compile(r"\s+|\S(?:.*\S)?", re.DOTALL)


def whole(line: str) -> list[str]:
    """The line as it is."""
    return [line]


def by_sentences(language: str) -> Split:
    """Cuts into the sentences of a language; of one that is not known, by what many share."""

    def split(line: str) -> list[str]:
        # By the letters' places alone: other white space than ASCII's makes sentencex 1.0.32 panic.
        sentences = sentencex.segment(language, OTHER_SPACE.sub(" ", line))
        ends = list(accumulate(map(len, sentences), initial=0))
        return [part for start, end in pairwise(ends) for part in PART.findall(line[start:end])]

    return split


def join(parts: Sequence[str], answers: Iterator[Answer]) -> Answer:
    """The answer to a line: those to its texts, which come in order, with the space between.

    The score of several sentences is their mean.
    """
    answered = [next(answers) if part.strip() else None for part in parts]
    sentences = [answer for answer in answered if answer is not None]
    if not sentences:
        return Answer()
    if len(sentences) == 1 == len(parts):
        return sentences[0]
    texts = (
        one_line(part) if answer is None else answer.best.text
        for part, answer in zip(parts, answered, strict=True)
    )
    log_probs = (log_prob for answer in sentences for log_prob in answer.best.token_log_probs)
    score = sum(answer.best.score for answer in sentences) / len(sentences)
    warnings = dict.fromkeys(warning for answer in sentences for warning in answer.warnings)
    return Answer(
        (Hypothesis("".join(texts), score, tuple(log_probs)),),
        any(answer.truncated for answer in sentences),
        tuple(warnings),
    )


WINDOW = 1024
"""Lines that are sorted by length together; memory is bounded by it."""

Item = str | Exception | None
"""A line of a stream, what reading it ended with, or its end."""

MAX_ROWS = 64
MAX_CHARACTERS = 16_384
"""A batch's limits: rows, and rows x the characters of the longest."""


def windows(lines: Iterable[str]) -> Iterator[list[str]]:
    """The lines of a text, so many at a time: the same ones whatever the machine does."""
    lines = iter(lines)
    while window := list(islice(lines, WINDOW)):
        yield window


def arriving(lines: Iterable[str]) -> Iterator[list[str]]:
    """The lines of a stream as they come: what is there is not kept waiting for what is not."""
    queue: Queue[Item] = Queue(WINDOW)
    Thread(target=_fill, args=(queue, lines), daemon=True).start()
    while True:
        items = _take(queue)
        window = [item for item in items if isinstance(item, str)]
        if window:
            yield window
        end = items[-1]
        if isinstance(end, Exception):
            raise end
        if end is None:
            return


def _fill(queue: Queue[Item], lines: Iterable[str]) -> None:
    try:
        for line in lines:
            queue.put(line)
        queue.put(None)
    except Exception as error:  # which whoever takes the lines must hear of
        queue.put(error)


def _take(queue: Queue[Item]) -> list[Item]:
    """What is there: one item at least, a window at most, and the end last."""
    items = [queue.get()]
    while len(items) < WINDOW and isinstance(items[-1], str):
        try:
            items.append(queue.get_nowait())
        except Empty:
            break
    return items


def translate_lines(
    answering: Answering,
    text: Iterable[list[str]],
    split: Split = whole,
    first_line: int = 0,
) -> Iterator[Answer]:
    """The answer to each line of some windows, in order.

    A line of white space alone is answered by nothing. `first_line` is the number of the first one,
    which decides what is drawn for it.
    """
    with _lanes() as lanes:
        for window in text:
            yield from _translate_window(lanes, answering, window, split, first_line)
            first_line += len(window)


@contextmanager
def _lanes() -> Iterator[Executor]:
    """What translates batches side by side; what has not begun when it is left is never done."""
    lanes = ThreadPoolExecutor(LANES, "lane")
    try:
        yield lanes
    finally:
        lanes.shutdown(cancel_futures=True)


def _translate_window(
    lanes: Executor, answering: Answering, lines: list[str], split: Split, first_line: int
) -> Iterator[Answer]:
    parts = [split(line) for line in lines]
    rows = [
        Row((number, place), part)
        for number, line in zip(count(first_line), parts, strict=False)
        for place, part in enumerate(line)
        if part.strip()
    ]
    fair = math.ceil(len(rows) / LANES)
    numbers = list(batches([len(row.text) for row in rows], max_rows=min(fair, MAX_ROWS)))
    together = lanes.map(answering, [[rows[number] for number in batch] for batch in numbers])
    answers: dict[int, Answer] = {}
    for batch, found in zip(numbers, together, strict=True):
        answers |= zip(batch, found, strict=True)
    in_order = (answers[number] for number in range(len(rows)))
    for line in parts:
        yield join(line, in_order)


def batches(
    lengths: Sequence[int], max_characters: int = MAX_CHARACTERS, max_rows: int = MAX_ROWS
) -> Iterator[list[int]]:
    """Rows of so many characters by their numbers, the longest first: what needs most memory."""
    by_length = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    start = 0
    while start < len(by_length):
        size = max(1, min(max_rows, max_characters // max(1, lengths[by_length[start]])))
        yield by_length[start : start + size]
        start += size
