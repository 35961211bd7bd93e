from pathlib import Path

import pytest

from tfnmt.data.files import read_lines
from tfnmt.evaluation.literature import literature_bleu, literature_tokens
from tfnmt.evaluation.scores import bleu

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
