"""A line of several sentences, taken apart for translation and put together again."""

import re
from collections.abc import Callable, Iterator, Sequence

import sentencex

from tfnmt.decoding.answers import Answer, Hypothesis

Split = Callable[[str], list[str]]
"""A line -> its parts in order: texts to translate, and white space between them."""

PART = re.compile(r"\s+|\S(?:.*\S)?", re.DOTALL)


def whole(line: str) -> list[str]:
    """The line as it is."""
    return [line]


def by_sentences(language: str) -> Split:
    """Cuts into the sentences of a language; of one that is not known, by what many share."""

    def split(line: str) -> list[str]:
        sentences = sentencex.segment(language, line)
        return [part for sentence in sentences for part in PART.findall(sentence)]

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
        part if answer is None else answer.best.text
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
