"""BLEU, chrF and TER by sacreBLEU, with their signatures and 95% intervals."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import estimate_ci
from sacremoses import MosesPunctNormalizer, MosesTokenizer

RESAMPLES, SEED = 1000, 12345
"""Bootstrap samples behind an interval, and what draws them: sacreBLEU's own defaults."""

METRICS: dict[str, type[BLEU] | type[CHRF] | type[TER]] = {"bleu": BLEU, "chrf": CHRF, "ter": TER}

LABELS = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER", "bleu_lc_tok": "BLEU, the literature's"}
"""What scores are called."""


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """sacreBLEU's corpus BLEU: cased, tokenizer 13a."""
    return float(BLEU().corpus_score(list(hypotheses), [list(references)]).score)


def scores(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, dict[str, Any]]:
    """`{"bleu": {"score", "low", "high", "signature"}, "chrf": ..., "ter": ...}`."""
    return {
        name: with_interval(metric(), hypotheses, references) for name, metric in METRICS.items()
    }


def with_interval(
    metric: Metric, hypotheses: Sequence[str], references: Sequence[str]
) -> dict[str, Any]:
    """A score with the interval that resampling the sentences gives."""
    found = resample(metric, hypotheses, references)
    mean, half = estimate_ci(found.samples)
    signature = metric.get_signature()
    signature.update("bs", RESAMPLES)
    signature.update("seed", SEED)
    return {
        "score": round(found.score, 4),
        "low": round(float(mean - half), 4),
        "high": round(float(mean + half), 4),
        "signature": signature.format(short=False),
    }


class Resampled(NamedTuple):
    """A system's score on a text, and on each sample of its sentences."""

    score: float
    samples: np.ndarray  # [RESAMPLES]


def resample(metric: Metric, hypotheses: Sequence[str], references: Sequence[str]) -> Resampled:
    """Scores samples of the sentences, as many as there are, the same for every system."""
    # What sacreBLEU's own bootstrap does, and draws; that one fails where some samples score 0.
    statistics = np.array(metric._extract_corpus_statistics(hypotheses, [references]))
    draws = np.random.default_rng(SEED).choice(len(statistics), (RESAMPLES, len(statistics)))

    def score(rows: np.ndarray) -> float:
        return float(metric._compute_score_from_stats(rows.sum(axis=0)).score)

    return Resampled(score(statistics), np.array([score(statistics[draw]) for draw in draws]))


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
