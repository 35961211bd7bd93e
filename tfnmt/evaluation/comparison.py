"""Whether one system is better than another on a text: the paired bootstrap of Koehn (2004)."""

from collections.abc import Sequence
from typing import Any

from sacrebleu.significance import PairedTest, Result, estimate_ci

from tfnmt.evaluation.metrics import METRICS, RESAMPLES, Resampled, resample


def compare(
    hypotheses: Sequence[str], others: Sequence[str], references: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """`{"bleu": {"difference", "low", "high", "p_value"}, "chrf": ..., "ter": ...}`.

    The difference is ours less theirs. Its 95% interval is that over samples of the sentences, of
    which both systems get the same. The p-value is that of sacreBLEU's paired bootstrap test: how
    often chance alone would make so large a difference.
    """
    p_values = _p_values(hypotheses, others, references)
    return {
        name: _difference(
            resample(metric(), hypotheses, references), resample(metric(), others, references)
        )
        | {"p_value": round(p_value, 4)}
        for (name, metric), p_value in zip(METRICS.items(), p_values, strict=True)
    }


def _p_values(
    hypotheses: Sequence[str], others: Sequence[str], references: Sequence[str]
) -> list[float]:
    systems: list[tuple[str, Sequence[str]]] = [("theirs", others), ("ours", hypotheses)]
    metrics = {name: metric() for name, metric in METRICS.items()}
    _, columns = PairedTest(systems, metrics, [references], "bs", RESAMPLES)()
    return [
        # Chance always makes a difference of nothing at least; sacreBLEU asks for more than that.
        ours.p_value if ours.score != theirs.score else 1.0
        for theirs, ours in columns.values()
        if isinstance(theirs, Result) and isinstance(ours, Result) and ours.p_value
    ]


def _difference(ours: Resampled, theirs: Resampled) -> dict[str, Any]:
    mean, half = estimate_ci(ours.samples - theirs.samples)
    return {
        "difference": round(ours.score - theirs.score, 4),
        "low": round(float(mean - half), 4),
        "high": round(float(mean + half), 4),
    }
