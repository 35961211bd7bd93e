from pathlib import Path

import pytest

from tfnmt.config import DataConfig
from tfnmt.data.corpora.catalog import open_corpus
from tfnmt.data.corpora.corpus import Corpus
from tfnmt.data.corpora.directions import by_direction, with_held_out

DIRECTIONS = ("en-de", "de-en", "fr-en")


@pytest.fixture
def wmt14(tmp_path: Path) -> Path:
    """A data folder in which only de-en has a test set."""
    splits = {
        "de-en": ("train", "newstest2013", "newstest2014"),
        "fr-en": ("train", "newstest2013"),
    }
    for pair, names in splits.items():
        folder = tmp_path / "wmt14" / pair
        folder.mkdir(parents=True)
        for split in names:
            for language in pair.split("-"):
                (folder / f"{split}.{language}").write_text(f"{pair} {split} {language}\n")
    return tmp_path


def opened(data_dir: Path, **keys: object) -> Corpus:
    data = DataConfig.model_validate({"corpus": "wmt14", "directions": DIRECTIONS, **keys})
    return open_corpus(data, 1, data_dir)


def test_text_of_a_pair_serves_both_directions(wmt14: Path) -> None:
    assert list(opened(wmt14).pairs("newstest2013")) == [
        ("de-en newstest2013 en", "de-en newstest2013 de"),
        ("de-en newstest2013 de", "de-en newstest2013 en"),
        ("fr-en newstest2013 fr", "fr-en newstest2013 en"),
    ]


def test_files_are_named_once(wmt14: Path) -> None:
    names = [path.name for path in opened(wmt14).files("train")]
    assert names == ["train.en", "train.de", "train.fr", "train.en"]


def test_a_list_of_one_direction_is_a_single_direction(wmt14: Path) -> None:
    assert opened(wmt14, directions=("fr-en",)) == opened(
        wmt14, directions=None, source="fr", target="en"
    )


def test_held_out_splits_belong_to_their_direction(wmt14: Path) -> None:
    corpus = opened(wmt14)
    named = (
        "en-de newstest2013",
        "en-de newstest2014",
        "de-en newstest2013",
        "de-en newstest2014",
        "fr-en newstest2013",
    )
    assert sorted(corpus.held_out) == sorted(named)
    fixed = with_held_out(
        corpus, ("en-de newstest2013", "de-en newstest2013", "fr-en newstest2013")
    )
    data = DataConfig(corpus="wmt14", directions=DIRECTIONS)
    assert [part.held_out for part in by_direction(data, fixed).values()] == [("newstest2013",)] * 3
    assert fixed.held_out == ("en-de newstest2013", "de-en newstest2013", "fr-en newstest2013")


def test_the_same_rows_are_held_out_in_both_directions(tmp_path: Path) -> None:
    for language in ("en", "de"):
        text = "".join(f"{language} {number}\n" for number in range(50))
        (tmp_path / f"my.{language}").write_text(text)
    train = (str(tmp_path / "my.en"), str(tmp_path / "my.de"))
    data = DataConfig(corpus=None, train=train, directions=("en-de", "de-en"))
    forwards, backwards = by_direction(data, open_corpus(data, 1, tmp_path)).values()
    val = [(target, source) for source, target in backwards.pairs("val")]
    assert list(forwards.pairs("val")) == val
    assert len(val) == 5
