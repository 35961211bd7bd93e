import math
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from tfnmt.config import DecodingConfig
from tfnmt.data.corpora.toy import grammar
from tfnmt.data.preparation.tokenizer import EOS, Tokenizer
from tfnmt.decoding.lines import to_tensor
from tfnmt.loading.models import find_run
from tfnmt.tracing.beam import SearchTrace, describe_fate, follow_search
from tfnmt.tracing.subject import Subject, make_batch, of_translator, tiny_subject

TEXTS = [source for source, _ in islice(grammar.pairs("test"), 3)] + ["a"]


def length_penalty(length: int) -> float:
    return ((5 + length) / 6) ** 0.6


@pytest.mark.parametrize("beam_size", [1, 3])
def test_it_finds_the_translators_own_strings_and_scores(tiny_run: Path, beam_size: int) -> None:
    model = find_run(tiny_run, {"beam_size": beam_size})
    translator = model.load_translator()
    subject = of_translator(translator, Tokenizer(model.run.tokenizer_model()))
    source = translator.tokenize(to_tensor(TEXTS))["tokens"].numpy()
    expected = translator.translate(to_tensor(TEXTS))

    rows = follow_search(subject, source).rows
    assert [row.translation.encode() for row in rows] == expected["translation"].numpy().tolist()
    np.testing.assert_allclose([row.score for row in rows], expected["score"], atol=1e-4)
    for row in rows:
        assert row.steps[-1].finished[0].tokens == row.tokens
        assert row.steps[-1].finished[0].score == pytest.approx(row.score, abs=1e-5)


@pytest.fixture(scope="module")
def subject() -> Subject:
    import keras

    keras.utils.set_random_seed(1)
    return tiny_subject(DecodingConfig(beam_size=2, max_extra_length=3))


@pytest.fixture(scope="module")
def search(subject: Subject) -> SearchTrace:
    ids = [[3, 4, EOS], [4, EOS], [4, 4, EOS]]
    return follow_search(subject, make_batch(ids, ids).source)


def test_a_candidate_has_its_parents_log_probability_and_its_own(search: SearchTrace) -> None:
    steps_seen = 0
    for row in search.rows:
        live = {0: 0.0}
        for step in row.steps:
            steps_seen += 1
            for each in step.candidates:
                expected = live[each.parent] + math.log(each.probability)
                assert each.log_prob == pytest.approx(expected, abs=1e-5)
            live = {each.slot: each.log_prob for each in step.candidates if each.slot is not None}
            assert list(live) == list(range(len(live)))  # the best has the first slot
            assert list(live.values()) == pytest.approx(step.live)
    assert steps_seen > 3


def test_what_ended_has_its_score_and_what_counts_is_the_best_of_it(search: SearchTrace) -> None:
    for row in search.rows:
        ended = []
        for step in row.steps:
            ended += [each.score for each in step.candidates if each.score is not None]
            for each in step.candidates:
                if each.score is not None:
                    penalty = length_penalty(step.position + 1)
                    assert each.score == pytest.approx(each.log_prob / penalty, abs=1e-5)
                    assert each.token == EOS
                    assert each.slot is None
        finished = row.steps[-1].finished
        assert [each.score for each in finished] == sorted(ended, reverse=True)[:2]
        assert finished[0].score == row.score


def test_fates_are_what_became_of_the_candidates(search: SearchTrace) -> None:
    steps = [step for row in search.rows for step in row.steps]
    seen = {}
    for step in steps:
        for rank, each in enumerate(step.candidates):
            fate = seen[each] = describe_fate(each, step)
            assert fate.startswith("pruned") == (each.slot is None and each.score is None)
            assert fate.startswith("goes on as") == (each.slot is not None and step.goes_on)
            assert ("K likeliest" in fate) == (each.token == EOS and rank >= 2)
            kept = any(ended.score == each.score for ended in step.finished)
            assert fate.endswith("K are better") == (each.score is not None and not kept)
    kinds = {fate.split(",")[0].rstrip("0123456789.-") for fate in seen.values()}
    assert {"pruned", "goes on as hypothesis ", "finished", "live when the search stopped"} <= kinds


def test_a_step_ends_in_logits_of_all_pieces_that_may_come(search: SearchTrace) -> None:
    for position, steps in enumerate(search.decoder):
        logits = steps[-1].get("result")
        assert logits.shape == (3, 2, 5)
        assert (logits[..., :2] < -1e30).all()  # padding and bos
        for number, row in enumerate(search.rows):
            for each in row.steps[position].candidates if position < len(row.steps) else []:
                shares = np.exp(logits[number, each.parent])
                expected = shares[each.token] / shares.sum()
                assert each.probability == pytest.approx(expected, abs=1e-5)


def test_a_row_goes_on_exactly_while_it_can_still_improve(search: SearchTrace) -> None:
    lengths = [len(row.steps) for row in search.rows]
    assert len(set(lengths)) > 1  # else a row that stops first is not seen
    for row in search.rows:
        assert all(step.goes_on and step.bound > step.worst for step in row.steps[:-1])
        last = row.steps[-1]
        assert not last.goes_on
        assert last.bound <= last.worst


def test_a_row_is_what_it_is_alone(subject: Subject, search: SearchTrace) -> None:
    ids = [[4, EOS]]
    (alone,) = follow_search(subject, make_batch(ids, ids).source).rows
    together = search.rows[1]
    assert alone.tokens == together.tokens
    assert [len(step.candidates) for step in alone.steps] == [
        len(step.candidates) for step in together.steps
    ]
    assert alone.score == pytest.approx(together.score, abs=1e-5)


def test_the_model_is_followed_in_every_step(search: SearchTrace) -> None:
    assert len(search.decoder) == max(len(row.steps) for row in search.rows)
    for position, steps in enumerate(search.decoder):
        (own,) = [step.get("result") for step in steps if step.function == "_inherit"]
        assert own.shape == (3, 2, (position + 1) * 2)
        # Every hypothesis has read as many pieces as there were steps.
        assert (own.sum(axis=-1) == position + 1).all()
        weights = [step for step in steps if step.function == "attention_weights"]
        assert [step.variables[0].letters for step in weights] == ["B H K T*K", "B H K S"]
    assert {step.side for step in search.encoder} == {"encode", ""}


def test_a_text_of_no_pieces_has_no_search(subject: Subject) -> None:
    ids = [[EOS]]
    (row,) = follow_search(subject, make_batch(ids, ids).source).rows
    assert (row.steps, row.tokens, row.score, row.translation) == ([], [], 0.0, "")
