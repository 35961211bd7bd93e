"""The vocabulary and the sentences of the tiny model, which copies two words."""

from collections.abc import Sequence
from itertools import product

from tfnmt.data.preparation.tokenizer import BOS, EOS, PAD
from tfnmt.errors import UsageError

WORDS = ("dog", "run")
VOCABULARY = ["<pad>", "<s>", "</s>", *WORDS]
"""The five tokens, by id. There is no unknown word, so there is no token for it."""

SOURCES = [[3, 4, EOS], [4, EOS]]
TARGETS = [[3, 4], [4, EOS]]
"""The default batch: two sentences, with three source positions and two target positions.

The first target is truncated before its EOS. Earlier positions do not depend on later ones, so
they stay the same.
"""

TRAINING_SENTENCES = [
    [VOCABULARY.index(word) for word in words] + [EOS]
    for count in (1, 2)
    for words in product(WORDS, repeat=count)
]
"""Everything that the model learns to copy: each word, and each sequence of two words."""


def encode(text: str) -> list[int]:
    """Convert words to ids, without BOS and EOS.

    Args:
        text: Words of the tiny model, separated by spaces.

    Raises:
        UsageError: If a word is not in the vocabulary.
    """
    unknown = [word for word in text.split() if word not in WORDS]
    if unknown:
        raise UsageError(f"--tiny: unknown word '{unknown[0]}'; use only {' and '.join(WORDS)}")
    return [VOCABULARY.index(word) for word in text.split()]


def decode(ids: Sequence[int]) -> str:
    """Convert ids to words; BOS, EOS and padding are left out."""
    return " ".join(VOCABULARY[number] for number in ids if number not in (PAD, BOS, EOS))
