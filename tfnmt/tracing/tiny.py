"""The text of the tiny model: two words, each a piece."""

from collections.abc import Sequence
from itertools import product

from tfnmt.data.preparation.tokenizer import BOS, EOS, PAD
from tfnmt.errors import UsageError

WORDS = ("cat", "dog")
PIECES = ["<pad>", "<s>", "</s>", *WORDS]
"""By id: a vocabulary of five. There is no unknown word, hence no piece for it."""

SOURCES = [[3, 4, EOS], [4, EOS]]
TARGETS = [[3, 4], [4, EOS]]
"""A batch to begin with: two sentences, three source and two target positions.

The first target is cut before its eos; what comes later changes nothing of what came before.
"""

LESSONS = [
    [PIECES.index(word) for word in words] + [EOS]
    for count in (1, 2)
    for words in product(WORDS, repeat=count)
]
"""All that there is to copy: each word, and each two of them."""


def encode(text: str) -> list[int]:
    """The ids of some words, without bos and eos; raises a UsageError for a word of others."""
    unknown = [word for word in text.split() if word not in WORDS]
    if unknown:
        raise UsageError(
            f"--tiny: does not know the word '{unknown[0]}'; it copies {' and '.join(WORDS)}"
        )
    return [PIECES.index(word) for word in text.split()]


def decode(ids: Sequence[int]) -> str:
    """The words of ids; bos, eos and padding leave no trace."""
    return " ".join(PIECES[number] for number in ids if number not in (PAD, BOS, EOS))
