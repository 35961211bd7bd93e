"""BLEU, chrF and TER by sacreBLEU, with their signatures and 95% intervals."""

from collections.abc import Sequence
from typing import Any

from sacrebleu.metrics import BLEU, CHRF, TER

RESAMPLES = 1000
"""Bootstrap samples behind an interval; sacreBLEU's own default, with its fixed seed."""

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
    metric: BLEU | CHRF | TER, hypotheses: Sequence[str], references: Sequence[str]
) -> dict[str, Any]:
    """A score with the interval that resampling the sentences gives."""
    result = metric.corpus_score(list(hypotheses), [list(references)], n_bootstrap=RESAMPLES)
    # sacreBLEU leaves the interval's middle and half width on the score.
    return {
        "score": round(float(result.score), 4),
        "low": round(float(result._mean - result._ci), 4),
        "high": round(float(result._mean + result._ci), 4),
        "signature": metric.get_signature().format(short=False),
    }
