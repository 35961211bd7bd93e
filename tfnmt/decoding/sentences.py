"""A line of several sentences, taken apart for translation and put together again."""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise

import sentencex

from tfnmt.decoding.answers import Answer, Hypothesis, one_line

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
