import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import sacrebleu

from tfnmt.data.corpora.text_files import read_lines
from tfnmt.evaluation import multi30k
from tfnmt.evaluation.metrics import (
    METRICS,
    OPTIONS,
    RESAMPLES,
    SEED,
    STANDARD_METRICS,
    bleu,
    resample,
    score_with_interval,
    scores,
    select_metrics,
)

REFERENCES = [
    f"The {animal} sleeps in the {place} ."
    for animal in ("dog", "cat", "old bear")
    for place in ("house", "garden", "forest", "small town")
]
HYPOTHESES = [line.replace("sleeps", "slept") if "cat" in line else line for line in REFERENCES]


def test_scores_equal_those_of_sacrebleu() -> None:
    found = scores(HYPOTHESES, REFERENCES)
    assert bleu(HYPOTHESES, REFERENCES) == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score
    assert found["bleu"]["score"] == pytest.approx(bleu(HYPOTHESES, REFERENCES), abs=1e-4)
    assert found["chrf"]["score"] == pytest.approx(
        sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score, abs=1e-4
    )
    assert found["ter"]["score"] == pytest.approx(
        sacrebleu.corpus_ter(HYPOTHESES, [REFERENCES]).score, abs=1e-4
    )


def test_scores_have_an_interval_and_a_signature() -> None:
    for name, score in scores(HYPOTHESES, REFERENCES).items():
        assert score["low"] < score["score"] < score["high"], name
        assert "bs:1000" in score["signature"]
        assert "version:" in score["signature"]


def test_bleu_of_equal_text_is_100_and_case_matters() -> None:
    assert bleu(REFERENCES, REFERENCES) == pytest.approx(100)
    assert bleu([line.lower() for line in REFERENCES], REFERENCES) < 90


def test_intervals_equal_those_of_sacrebleu() -> None:
    found = scores(HYPOTHESES, REFERENCES)
    for key, metric in STANDARD_METRICS.items():
        reference = metric.create()
        result = reference.corpus_score(HYPOTHESES, [REFERENCES], n_bootstrap=1000)
        assert found[key]["low"] == pytest.approx(result._mean - result._ci, abs=1e-3)
        assert found[key]["high"] == pytest.approx(result._mean + result._ci, abs=1e-3)
        assert found[key]["signature"] == reference.get_signature().format()


def test_intervals_exist_if_samples_score_0() -> None:
    """sacreBLEU's own bootstrap fails if nothing is right in a sample."""
    hypotheses = [REFERENCES[0], *["-"] * 11]
    bleu_score = scores(hypotheses, REFERENCES)["bleu"]
    assert bleu_score["low"] < bleu_score["score"] < bleu_score["high"]
    nothing = scores(["-"] * 12, REFERENCES)
    assert nothing["bleu"]["score"] == nothing["bleu"]["high"] == 0


def test_samples_are_sampled_one_at_a_time() -> None:
    """They equal those sampled at once, whose row numbers would take 4 MB."""
    lines = [f"word {number % 7} of {number % 13}" for number in range(501)]
    references = [line.replace("3", "4") for line in lines]
    metric = METRICS["bleu"].create()
    tracemalloc.start()
    try:
        found = resample(metric, lines, references)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    statistics = np.array(metric._extract_corpus_statistics(lines, [references]))
    rows = np.random.default_rng(SEED).choice(501, (RESAMPLES, 501))
    expected = [metric._compute_score_from_stats(statistics[own].sum(axis=0)).score for own in rows]
    assert found.samples.tolist() == expected
    assert peak < 2e6


def test_registry_has_standard_metrics_and_the_metrics_of_each_option() -> None:
    assert list(STANDARD_METRICS) == ["bleu", "chrf", "ter"]
    assert OPTIONS == ["multi30k"]
    assert select_metrics(None) == list(STANDARD_METRICS.values())
    assert [metric.key for metric in select_metrics("multi30k")] == [
        "bleu",
        "chrf",
        "ter",
        "bleu_lc_tok",
    ]
    assert all(metric.key == key for key, metric in METRICS.items())


def test_metrics_import_sacremoses_only_for_multi30k() -> None:
    code = "import sys, tfnmt.evaluation.metrics; sys.exit('sacremoses' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


MULTI30K = Path(__file__).resolve().parents[4] / "shared" / "data" / "multi30k"


def test_multi30k_text_is_lowercased_normalized_and_tokenized() -> None:
    assert multi30k.tokenize(["Ein „Hund“, der bellt."], "de") == [
        "ein &quot; hund &quot; , der bellt ."
    ]


def test_multi30k_bleu_of_cased_text_against_its_tokens_is_100(tmp_path: Path) -> None:
    lines = ["Ein Mann schläft .", "Zwei Frauen, die lachen."]
    metric = METRICS["bleu_lc_tok"]
    hypotheses = metric.prepare_hypotheses(lines, "de")
    references = metric.prepare_references(lines, "de", tmp_path / "t.de")
    assert metric.prepare_references(lines, "de", None) == references  # a built-in corpus
    score = score_with_interval(metric.create(), hypotheses, references)
    assert score["score"] == pytest.approx(100)
    assert "tok:none" in score["signature"]


def test_multi30k_references_without_a_file_are_tokenized() -> None:
    metric = METRICS["bleu_lc_tok"]
    assert metric.prepare_references(["Ein Hund."], "de", None) == ["ein hund ."]


@pytest.mark.skipif(not MULTI30K.is_dir(), reason="the Multi30k files are not available")
def test_multi30k_tokens_of_the_references_equal_the_official_ones() -> None:
    references = list(read_lines(MULTI30K / "test_2016_flickr.de"))
    official = list(read_lines(MULTI30K / "test_2016_flickr.lc.norm.tok.de"))
    assert multi30k.tokenize(references, "de") == official
    assert sum(len(line.split()) for line in official) == 12_103
    lower = [line.lower() for line in references]
    assert bleu(lower, references) == pytest.approx(23.27, abs=0.005)
