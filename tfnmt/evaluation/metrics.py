"""The metrics of an evaluation, computed by sacreBLEU, with 95% confidence intervals.

METRICS is the registry. To add a metric, add an entry: `evaluate` computes and prints it.
sacreBLEU and numpy are imported when a metric is created, so that `evaluate --help` stays fast.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tfnmt.evaluation import multi30k

if TYPE_CHECKING:
    import numpy as np
    from sacrebleu.metrics.base import Metric as SacreBleuMetric

RESAMPLES, SEED = 1000, 12345
"""Bootstrap samples of a confidence interval, and their random seed: the defaults of sacreBLEU."""


# --- Registry -------------------------------------------------------------------------------------


def _unchanged(lines: Sequence[str], *_: object) -> Sequence[str]:
    return lines


def _sacrebleu(name: str, **options: Any) -> Callable[[], "SacreBleuMetric"]:
    """Return a function that creates a metric of sacreBLEU."""

    def create() -> "SacreBleuMetric":
        import sacrebleu.metrics

        metric: SacreBleuMetric = getattr(sacrebleu.metrics, name)(**options)
        return metric

    return create


class Metric(NamedTuple):
    """A metric of an evaluation.

    Attributes:
        key: Its key in evaluations.
        label: Its name in printed results and reports.
        create: Returns a new sacreBLEU metric.
        option: The value of `--metric` that adds it. None: it is always computed.
        prepare_hypotheses: Preprocesses detokenized lines, given their language.
        prepare_references: Preprocesses detokenized lines, given their language and their file.
    """

    key: str
    label: str
    create: Callable[[], "SacreBleuMetric"]
    option: str | None = None
    prepare_hypotheses: Callable[[Sequence[str], str], Sequence[str]] = _unchanged
    prepare_references: Callable[[Sequence[str], str, Path | None], Sequence[str]] = _unchanged


METRICS = {
    metric.key: metric
    for metric in (
        Metric("bleu", "BLEU", _sacrebleu("BLEU")),
        Metric("chrf", "chrF", _sacrebleu("CHRF")),
        Metric("ter", "TER", _sacrebleu("TER")),
        Metric(
            "bleu_lc_tok",
            "BLEU (lowercased, tokenized)",
            _sacrebleu("BLEU", tokenize="none", force=True),
            option="multi30k",
            prepare_hypotheses=multi30k.tokenize,
            prepare_references=multi30k.reference_tokens,
        ),
    )
}
"""All metrics by key, in the order in which they are printed."""

STANDARD_METRICS = {key: metric for key, metric in METRICS.items() if metric.option is None}
"""The metrics that are always computed. Comparisons and reports use these."""

OPTIONS = sorted({metric.option for metric in METRICS.values() if metric.option is not None})
"""The values of `--metric`."""


def select_metrics(option: str | None) -> list[Metric]:
    """Return the standard metrics, and those that `--metric=<option>` adds."""
    return [metric for metric in METRICS.values() if metric.option in (None, option)]


# --- Scores ---------------------------------------------------------------------------------------


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Return the corpus BLEU of sacreBLEU: case-sensitive, tokenizer 13a."""
    metric = METRICS["bleu"].create()
    return float(metric.corpus_score(list(hypotheses), [list(references)]).score)


def scores(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Score detokenized translations with the standard metrics.

    Args:
        hypotheses: The translations.
        references: The reference translations, in the same order.

    Returns:
        `{"bleu": {"score", "low", "high", "signature"}, "chrf": ..., "ter": ...}`. `low` and `high`
        are the ends of the 95% confidence interval.
    """
    return {
        key: score_with_interval(metric.create(), hypotheses, references)
        for key, metric in STANDARD_METRICS.items()
    }


def score_with_interval(
    metric: "SacreBleuMetric", hypotheses: Sequence[str], references: Sequence[str]
) -> dict[str, Any]:
    """Return score, 95% confidence interval and signature of preprocessed text."""
    from sacrebleu.significance import estimate_ci

    resampled = resample(metric, hypotheses, references)
    mean, half_width = estimate_ci(resampled.samples)
    signature = metric.get_signature()
    signature.update("bs", RESAMPLES)
    signature.update("seed", SEED)
    return {
        "score": round(resampled.score, 4),
        "low": round(float(mean - half_width), 4),
        "high": round(float(mean + half_width), 4),
        "signature": signature.format(short=False),
    }


class Resampled(NamedTuple):
    """The score of a system on a text, and on bootstrap samples of its sentences."""

    score: float
    samples: "np.ndarray"  # [RESAMPLES]


def resample(
    metric: "SacreBleuMetric", hypotheses: Sequence[str], references: Sequence[str]
) -> Resampled:
    """Score a text and bootstrap samples of it.

    Each sample has as many sentences as the text. The samples are the same for every system, so
    that systems can be compared sample by sample.
    """
    import numpy as np

    # The samples are those of sacreBLEU's own bootstrap, which fails if a sample scores 0.
    statistics = np.array(metric._extract_corpus_statistics(hypotheses, [references]))
    random, count = np.random.default_rng(SEED), len(statistics)

    def score(rows: np.ndarray) -> float:
        return float(metric._compute_score_from_stats(rows.sum(axis=0)).score)

    # One sample at a time: the row numbers of all samples could exceed the memory.
    samples = [score(statistics[random.choice(count, count)]) for _ in range(RESAMPLES)]
    return Resampled(score(statistics), np.array(samples))
