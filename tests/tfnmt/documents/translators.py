"""Translators without a model: their words and their alignment are known."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Aligned(NamedTuple):
    source: list[str]
    target: list[str]
    attention: np.ndarray


class UpperCase:
    """Translates each word by the same word in upper case, in the same order."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def translate(self, sentences: Sequence[str]) -> list[str]:
        self.texts += sentences
        return [self.translate_one(sentence) for sentence in sentences]

    def translate_one(self, sentence: str) -> str:
        return sentence.upper()

    def align(self, pairs: Sequence[tuple[str, str]]) -> list[Aligned]:
        return [self.align_one(source.split(), target.split()) for source, target in pairs]

    def align_one(self, source: list[str], target: list[str]) -> Aligned:
        rows = [*target, "</s>"]
        columns = [*source, "</s>"]
        attention = np.full((len(rows), len(columns)), 0.1 / len(columns))
        for row in range(len(rows)):
            attention[row, min(self.source_of(row, len(target)), len(source))] += 0.9
        return Aligned(_tokens(columns), _tokens(rows), attention)

    def source_of(self, row: int, length: int) -> int:
        return row


class Reversed(UpperCase):
    """Also reverses the words, except a final full stop."""

    def translate_one(self, sentence: str) -> str:
        words = sentence.upper().rstrip(".").split()[::-1]
        return " ".join(words) + sentence[len(sentence.rstrip(".")) :]

    def source_of(self, row: int, length: int) -> int:
        return length - 1 - row if row < length else row


class Forgetful(UpperCase):
    """Loses digits and names."""

    def translate_one(self, sentence: str) -> str:
        return " ".join(word for word in sentence.upper().split() if word in ("SEE", "NOW", "AND"))


def _tokens(words: Sequence[str]) -> list[str]:
    return [word if word == "</s>" else f"\u2581{word}" for word in words]
