"""The Python API: tfnmt.load and the methods of its result."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfnmt
from tfnmt import TextTranslator, UserError

TEXTS = ["the dog sleeps", "", "she knows that the cat can return"]


@pytest.fixture(scope="module")
def translator(tiny_run: Path, two_way_run: Path) -> TextTranslator:
    # Both runs are trained first: setting a random seed frees the tokenizers in TensorFlow's cache.
    return tfnmt.load(tiny_run)


@pytest.fixture(scope="module")
def two_way(two_way_run: Path) -> TextTranslator:
    return tfnmt.load(str(two_way_run))


def test_translations_have_text_and_score_in_the_order_of_the_texts(
    translator: TextTranslator,
) -> None:
    translations = translator.translate(TEXTS)
    assert [each.source for each in translations] == TEXTS
    assert translations[1].text == ""
    alone = translator.translate(TEXTS[2:])[0]
    assert alone.text == translations[2].text
    assert alone.score == pytest.approx(translations[2].score)


def test_nbest_list_begins_with_the_translation(translator: TextTranslator) -> None:
    (best,), (several,) = (translator.translate(TEXTS[:1], nbest=n) for n in (1, 3))
    assert several.text == best.text
    scores = [each.score for each in several.hypotheses]
    assert 1 < len(scores) <= 3
    assert scores == sorted(scores, reverse=True)


def test_score_of_a_pair_is_the_sum_of_its_aligned_log_probabilities(
    translator: TextTranslator,
) -> None:
    pairs = [("the dog sleeps", "der Hund schläft"), ("she knows", "sie weiß")]
    for scored, aligned in zip(translator.score(pairs), translator.align(pairs), strict=True):
        assert scored.log_prob == pytest.approx(sum(aligned.log_probs), abs=1e-4)
        assert scored.tokens == len(aligned.target)
        assert aligned.attention.shape == (len(aligned.target), len(aligned.source))
        np.testing.assert_allclose(aligned.attention.sum(axis=1), 1, rtol=1e-4)


def test_target_selects_the_language_and_is_required(two_way: TextTranslator) -> None:
    assert two_way.directions == ("en-de", "de-en")
    one, other = (two_way.translate(TEXTS[:1], target=each)[0].score for each in ("de", "en"))
    assert one != other
    with pytest.raises(UserError, match="--target: missing"):
        two_way.translate(TEXTS[:1])
    with pytest.raises(UserError, match="--target=fr: unknown"):
        two_way.align([("a", "b")], target="fr")


@pytest.mark.parametrize("nbest", [0, 5])
def test_nbest_beyond_the_beam_is_refused(translator: TextTranslator, nbest: int) -> None:
    with pytest.raises(UserError, match=rf"^nbest={nbest}: must be between 1 and 4"):
        translator.translate(TEXTS, nbest=nbest)


def test_nbest_lists_of_split_texts_are_refused(translator: TextTranslator) -> None:
    with pytest.raises(UserError, match=r"^nbest: not with split_sentences"):
        translator.translate(TEXTS, nbest=2, split_sentences=True)


def test_single_string_is_refused(translator: TextTranslator) -> None:
    with pytest.raises(TypeError, match="a list of strings"):
        translator.translate("the dog sleeps")


def test_texts_of_an_iterator_are_translated(translator: TextTranslator) -> None:
    assert len(translator.translate(iter(["a dog", "a cat"]))) == 2


def test_texts_that_are_no_strings_are_refused(translator: TextTranslator) -> None:
    with pytest.raises(TypeError, match=r"^texts\[1\]: 7 is not a string"):
        translator.translate(["a", 7])


@pytest.mark.parametrize("pair", ["ab", ("a",), ("a", None)])
@pytest.mark.parametrize("method", ["score", "align"])
def test_pairs_that_are_no_pairs_are_refused(
    translator: TextTranslator, method: str, pair: Any
) -> None:
    with pytest.raises(TypeError, match=r"^pairs\[1\]: .* is not a pair of strings"):
        getattr(translator, method)([("a", "b"), pair])


def test_sentences_are_split_on_request(translator: TextTranslator) -> None:
    text = "The dog sleeps. She knows that."
    (whole,) = translator.translate([text])
    (split,) = translator.translate([text], split_sentences=True)
    sentences = translator.translate(["The dog sleeps.", "She knows that."])
    assert split.text == " ".join(each.text for each in sentences)
    assert whole.hypotheses[0].tokens is not None
    assert split.hypotheses[0].tokens is None


def test_saved_model_cannot_score(tiny_export: Path) -> None:
    saved = tfnmt.load(tiny_export)
    assert saved.translate(TEXTS[:1])[0].text
    with pytest.raises(UserError, match="a SavedModel; scoring needs the run"):
        saved.score([("a", "b")])


def test_import_of_the_package_imports_nothing_heavy() -> None:
    code = "import sys, tfnmt; print([m for m in ('numpy', 'tensorflow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_unknown_attribute_is_an_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'laod'"):
        tfnmt.laod  # noqa: B018
