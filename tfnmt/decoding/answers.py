"""What is answered to a line, and the ways to come by it: the best, several, or drawn ones."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfnmt.decoding.warnings import Reading, find_warnings

Tensor = Any
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
