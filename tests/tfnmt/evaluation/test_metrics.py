from pathlib import Path

import pytest
import sacrebleu

from tfnmt.data.corpora.text_files import read_lines
from tfnmt.evaluation.metrics import METRICS, bleu, literature_bleu, literature_tokens, scores

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


def test_intervals_are_sacrebleus() -> None:
    found = scores(HYPOTHESES, REFERENCES)
    for name, metric in METRICS.items():
        own = metric()
        result = own.corpus_score(HYPOTHESES, [REFERENCES], n_bootstrap=1000)
        assert found[name]["low"] == pytest.approx(result._mean - result._ci, abs=1e-3)
        assert found[name]["high"] == pytest.approx(result._mean + result._ci, abs=1e-3)
        assert found[name]["signature"] == own.get_signature().format()


def test_what_is_hardly_ever_right_has_its_interval_too() -> None:
    """Some samples have nothing right, which sacreBLEU's own bootstrap cannot work with."""
    hypotheses = [REFERENCES[0], *["-"] * 11]
    bleu_score = scores(hypotheses, REFERENCES)["bleu"]
    assert bleu_score["low"] < bleu_score["score"] < bleu_score["high"]
    nothing = scores(["-"] * 12, REFERENCES)
    assert nothing["bleu"]["score"] == nothing["bleu"]["high"] == 0


MULTI30K = Path(__file__).resolve().parents[4] / "shared" / "data" / "multi30k"


def test_text_is_lowered_normalised_and_tokenised() -> None:
    assert literature_tokens(["Ein „Hund“, der bellt."], "de") == [
        "ein &quot; hund &quot; , der bellt ."
    ]


def test_cased_text_scores_100_against_its_own_tokens() -> None:
    lines = ["Ein Mann schläft .", "Zwei Frauen, die lachen."]
    score = literature_bleu(lines, literature_tokens(lines, "de"), "de")
    assert score["score"] == pytest.approx(100)
    assert "tok:none" in score["signature"]


@pytest.mark.skipif(not MULTI30K.is_dir(), reason="Multi30k is not beside the clone")
def test_raw_references_give_the_official_tokens() -> None:
    references = list(read_lines(MULTI30K / "test_2016_flickr.de"))
    official = list(read_lines(MULTI30K / "test_2016_flickr.lc.norm.tok.de"))
    assert literature_tokens(references, "de") == official
    assert sum(len(line.split()) for line in official) == 12_103
    lower = [line.lower() for line in references]
    assert bleu(lower, references) == pytest.approx(23.27, abs=0.005)
