import pytest
import sacrebleu

from tfnmt.evaluation.scores import bleu, scores

REFERENCES = [f"The {animal} sleeps in the {place} ." for animal in ("dog", "cat", "old bear")
              for place in ("house", "garden", "forest", "small town")]  # fmt: skip
HYPOTHESES = [line.replace("sleeps", "slept") if "cat" in line else line for line in REFERENCES]


def test_scores_are_sacrebleus() -> None:
    found = scores(HYPOTHESES, REFERENCES)
    assert bleu(HYPOTHESES, REFERENCES) == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score
    assert found["bleu"]["score"] == pytest.approx(bleu(HYPOTHESES, REFERENCES), abs=1e-4)
    assert found["chrf"]["score"] == pytest.approx(
        sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score, abs=1e-4
    )
    assert found["ter"]["score"] == pytest.approx(
        sacrebleu.corpus_ter(HYPOTHESES, [REFERENCES]).score, abs=1e-4
    )


def test_the_interval_holds_the_score_and_the_signature_says_how() -> None:
    for name, score in scores(HYPOTHESES, REFERENCES).items():
        assert score["low"] < score["score"] < score["high"], name
        assert "bs:1000" in score["signature"]
        assert "version:" in score["signature"]


def test_equal_text_scores_100_and_case_counts() -> None:
    assert bleu(REFERENCES, REFERENCES) == pytest.approx(100)
    assert bleu([line.lower() for line in REFERENCES], REFERENCES) < 90
