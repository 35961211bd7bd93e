"""Comparison of two systems on the same text: the paired bootstrap test of Koehn (2004)."""

from collections.abc import Sequence
from typing import Any

from tfnmt.evaluation.metrics import RESAMPLES, STANDARD_METRICS, Resampled, resample


def compare(
    hypotheses: Sequence[str], others: Sequence[str], references: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Compare the translations of a system with those of another system.

    Args:
        hypotheses: The translations of the system.
        others: The translations of the other system, in the same order.
        references: The reference translations, in the same order.

    Returns:
        `{"bleu": {"difference", "low", "high", "p_value"}, "chrf": ..., "ter": ...}`. `difference`
        is the score of the system minus that of the other one. `low` and `high` are its 95%
        confidence interval over bootstrap samples, which are the same for both systems. `p_value`
        is that of sacreBLEU's paired bootstrap test: the probability of a difference of this size
        by chance.
    """
    p_values = _p_values(hypotheses, others, references)
    return {
        key: _difference(
            resample(metric.create(), hypotheses, references),
            resample(metric.create(), others, references),
        )
        | {"p_value": round(p_value, 4)}
        for (key, metric), p_value in zip(STANDARD_METRICS.items(), p_values, strict=True)
    }


def _p_values(
    hypotheses: Sequence[str], others: Sequence[str], references: Sequence[str]
) -> list[float]:
    from sacrebleu.significance import PairedTest, Result

    systems: list[tuple[str, Sequence[str]]] = [("theirs", others), ("ours", hypotheses)]
    metrics = {key: metric.create() for key, metric in STANDARD_METRICS.items()}
    _, columns = PairedTest(systems, metrics, [references], "bs", RESAMPLES)()
    return [
        # Every sample has a difference of at least 0, so p is 1 for equal scores. sacreBLEU counts
        # only the samples with more than that.
        ours.p_value if ours.score != theirs.score else 1.0
        for theirs, ours in columns.values()
        if isinstance(theirs, Result) and isinstance(ours, Result) and ours.p_value
    ]


def _difference(ours: Resampled, theirs: Resampled) -> dict[str, Any]:
    from sacrebleu.significance import estimate_ci

    mean, half_width = estimate_ci(ours.samples - theirs.samples)
    return {
        "difference": round(ours.score - theirs.score, 4),
        "low": round(float(mean - half_width), 4),
        "high": round(float(mean + half_width), 4),
    }
