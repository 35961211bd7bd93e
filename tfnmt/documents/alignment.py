"""Word alignment from the attention of a model to the tokens of its source."""

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from tfnmt.documents.segments import Alignment
from tfnmt.documents.sentences import Span
from tfnmt.documents.tokens import EOS, LANGUAGE, locate_tokens

WORD = re.compile(r"\w+|[^\w\s]")
"""A word or a punctuation mark."""

EPSILON = 1e-9


def find_words(text: str) -> list[Span]:
    """Return the positions of the words and punctuation marks."""
    return [Span(*match.span()) for match in WORD.finditer(text)]


def word_weights(source: str, target: str, alignment: Alignment) -> np.ndarray:
    """Return how strongly each target word depends on each source word, [target, source].

    Every source word has the same total weight. Without this, words that the model always attends
    to, such as the last ones, win too often. EOS and the token of the language do not count.
    """
    weights = np.array(alignment.attention, np.float32)
    for axis, tokens in enumerate((alignment.target, alignment.source)):
        for index, token in enumerate(tokens):
            if token == EOS or LANGUAGE.fullmatch(token):
                weights[(slice(None),) * axis + (index,)] = 0
    rows = _incidence(target, alignment.target)
    columns = _incidence(source, alignment.source)
    by_word = rows @ weights @ columns.T
    return by_word / (by_word.sum(axis=0, keepdims=True) + EPSILON)


def _incidence(text: str, tokens: Sequence[str]) -> np.ndarray:
    """Return a matrix [words, tokens]: 1 where a token has a character of the word."""
    owners = np.full(len(text) + 1, -1)
    words = find_words(text)
    for number, word in enumerate(words):
        owners[word.start : word.end] = number
    matrix = np.zeros((len(words), len(tokens)), np.float32)
    for number, span in enumerate(locate_tokens(tokens, text)):
        matrix[[owner for owner in set(owners[span.start : span.end]) if owner >= 0], number] = 1
    return matrix


def nearest_words(source: Sequence[str], target: Sequence[str], weights: np.ndarray) -> list[int]:
    """Return the number of the source word for each target word.

    A word that occurs once in both texts is its own translation. A word without weight, after the
    end of a truncated alignment, follows the word before it.
    """
    counts, own_counts = Counter(source), Counter(target)
    nearest: list[int] = []
    for word, row in zip(target, weights, strict=True):
        if counts[word] == own_counts[word] == 1:
            nearest.append(source.index(word))
        elif row.any():
            nearest.append(int(row.argmax()))
        else:
            nearest.append(nearest[-1] if nearest else 0)
    return nearest
