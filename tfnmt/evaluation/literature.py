"""The BLEU of the Multi30k literature: lower-cased, punctuation-normalised, Moses tokens.

Comparable with papers that score tokenised text by multi-bleu, and with nothing else.
"""

from collections.abc import Sequence
from typing import Any

from sacrebleu.metrics import BLEU
from sacremoses import MosesPunctNormalizer, MosesTokenizer

from tfnmt.evaluation.scores import with_interval


def literature_tokens(lines: Sequence[str], language: str) -> list[str]:
    """Lines as the literature's scripts leave them, tokens apart by spaces."""
    normalizer, tokenizer = MosesPunctNormalizer(language), MosesTokenizer(language)
    return [
        tokenizer.tokenize(normalizer.normalize(line.lower()), return_str=True, escape=True)
        for line in lines
    ]


def literature_bleu(
    hypotheses: Sequence[str], references: Sequence[str], language: str
) -> dict[str, Any]:
    """The score of cased, detokenised hypotheses against references that are tokens already."""
    metric = BLEU(tokenize="none", force=True)
    return with_interval(metric, literature_tokens(hypotheses, language), references)
