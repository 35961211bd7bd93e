"""The Scorer: force-decodes given translations and reports their probability."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, TypeVar

import numpy as np

from tfnmt.config import DecodingConfig
from tfnmt.data.preparation.tokenizer import EOS, Tokenizer
from tfnmt.decoding.lines import (
    WINDOW,
    Signatures,
    length_batches,
    single_line,
    to_ids,
    to_strings,
)

Ids = Sequence[int]
Target = TypeVar("Target", str, Ids)


class Scored(NamedTuple):
    """The score of a translation."""

    log_prob: float  # natural logarithm of its probability
    score: float  # log_prob divided by the length penalty
    tokens: int  # EOS included
    text: str  # of these tokens, a single line
    truncated: bool  # whether a side was longer than the model reads


class Encoded(NamedTuple):
    """The ids of a translation."""

    ids: Ids
    truncated: bool


class Scorer:
    """Scores any number of translations, given as texts or as token ids.

    The score of ids is the score that the search gives them. A text may have been found with other
    tokens than those of the tokenizer, and then it gets another score.
    """

    def __init__(
        self, signatures: Signatures, tokenizer_model: bytes, decoding: DecodingConfig
    ) -> None:
        """Create a scorer.

        Args:
            signatures: The graphs of the model.
            tokenizer_model: The content of its SentencePiece model file.
            decoding: The limits and the length penalty.
        """
        self._tokenize = signatures["tokenize"]
        self._log_probs = signatures.get("token_log_probs") or signatures["align_tokens"]
        self._tokenizer = Tokenizer(tokenizer_model)
        self._decoding = decoding

    @property
    def vocab_size(self) -> int:
        """Return the number of tokens of the model."""
        return self._tokenizer.vocab_size

    def score(self, pairs: Iterable[tuple[str, str]]) -> Iterator[Scored]:
        """Score (source, target) texts, in order."""
        return self._score_all(pairs, self._encode)

    def score_ids(self, pairs: Iterable[tuple[str, Ids]]) -> Iterator[Scored]:
        """Score (source, token ids) pairs, in order. Ids are never truncated."""
        return self._score_all(pairs, lambda targets: [Encoded(ids, False) for ids in targets])

    def _score_all(
        self, pairs: Iterable[tuple[str, Target]], encode: Callable[[list[Target]], list[Encoded]]
    ) -> Iterator[Scored]:
        pairs = iter(pairs)
        while window := list(islice(pairs, WINDOW)):
            scored: dict[int, Scored] = {}
            for rows in length_batches([max(map(len, pair)) for pair in window]):
                sources, targets = zip(*(window[row] for row in rows), strict=True)
                scored |= zip(rows, self._score_batch(sources, encode(list(targets))), strict=True)
            yield from (scored[row] for row in range(len(window)))

    def _score_batch(self, texts: Sequence[str], targets: list[Encoded]) -> Iterator[Scored]:
        source = self._tokenize(text=to_strings(texts))
        target = to_ids([each.ids for each in targets])
        outputs = self._log_probs(tokens=source["tokens"], target=target)
        log_probs = np.asarray(outputs["token_log_probs"]).sum(axis=1)
        tokens = np.count_nonzero(target, axis=1)
        with np.errstate(over="ignore"):  # the penalty may be infinite
            scores = log_probs / ((5 + tokens) / 6) ** self._decoding.length_penalty
        decoded = self._tokenizer.decode([[i for i in each.ids if i > EOS] for each in targets])
        truncated = np.asarray(source["truncated"]) | [each.truncated for each in targets]
        columns = (log_probs.tolist(), scores.tolist(), tokens.tolist(), truncated.tolist())
        for log_prob, score, length, is_truncated, text in zip(*columns, decoded, strict=True):
            yield Scored(log_prob, score, length, single_line(text), is_truncated)

    def _encode(self, texts: list[str]) -> list[Encoded]:
        """Encode translations, truncated to the limit of a search."""
        limit = self._decoding.max_translation_length - 1  # without EOS
        encoded = self._tokenizer.encode(texts)
        return [Encoded([*ids[:limit], EOS], len(ids) > limit) for ids in encoded]
