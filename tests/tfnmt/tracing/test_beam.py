import math
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from tfnmt.config import DecodingConfig
from tfnmt.data.corpora.toy import grammar
from tfnmt.data.preparation.tokenizer import EOS, Tokenizer
from tfnmt.decoding.lines import to_strings
from tfnmt.loading.models import find_run
from tfnmt.tracing.beam import SearchTrace, describe_outcome, trace_search
from tfnmt.tracing.traced_model import TracedModel, make_batch, tiny_model, traced_translator

TEXTS = [source for source, _ in islice(grammar.pairs("test"), 3)] + ["a"]


def length_penalty(length: int) -> float:
    return ((5 + length) / 6) ** 0.6


@pytest.mark.parametrize("beam_size", [1, 3])
def test_search_trace_has_the_strings_and_scores_of_the_translator(
    tiny_run: Path, beam_size: int
) -> None:
    run_model = find_run(tiny_run, {"beam_size": beam_size})
    translator = run_model.load_translator()
    model = traced_translator(translator, Tokenizer(run_model.run.tokenizer_model()))
    source = translator.tokenize(to_strings(TEXTS))["tokens"].numpy()
    expected = translator.translate(to_strings(TEXTS))

    rows = trace_search(model, source).rows
    assert [row.translation.encode() for row in rows] == expected["translation"].numpy().tolist()
    np.testing.assert_allclose([row.score for row in rows], expected["score"], atol=1e-4)
    for row in rows:
        assert row.steps[-1].finished[0].tokens == row.tokens
        assert row.steps[-1].finished[0].score == pytest.approx(row.score, abs=1e-5)


@pytest.fixture(scope="module")
def model() -> TracedModel:
    import keras

    keras.utils.set_random_seed(1)
    return tiny_model(DecodingConfig(beam_size=2, max_extra_length=3))


@pytest.fixture(scope="module")
def search(model: TracedModel) -> SearchTrace:
    ids = [[3, 4, EOS], [4, EOS], [4, 4, EOS]]
    return trace_search(model, make_batch(ids, ids).source)


def test_candidate_log_prob_is_that_of_its_parent_plus_its_own(search: SearchTrace) -> None:
    steps_seen = 0
    for row in search.rows:
        live = {0: 0.0}
        for step in row.steps:
            steps_seen += 1
            for each in step.candidates:
                expected = live[each.parent] + math.log(each.probability)
                assert each.log_prob == pytest.approx(expected, abs=1e-5)
            live = {each.slot: each.log_prob for each in step.candidates if each.slot is not None}
            assert list(live) == list(range(len(live)))  # slots are ordered, best first
            assert list(live.values()) == pytest.approx(step.live)
    assert steps_seen > 3


def test_finished_hypotheses_are_the_best_of_those_that_ended(search: SearchTrace) -> None:
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


def test_outcome_matches_slot_and_score_of_each_candidate(search: SearchTrace) -> None:
    steps = [step for row in search.rows for step in row.steps]
    seen = {}
    for step in steps:
        for rank, each in enumerate(step.candidates):
            outcome = seen[each] = describe_outcome(each, step)
            assert outcome.startswith("pruned") == (each.slot is None and each.score is None)
            assert outcome.startswith("continues as") == (each.slot is not None and step.continues)
            assert ("K most probable" in outcome) == (each.token == EOS and rank >= 2)
            kept = any(finished.score == each.score for finished in step.finished)
            assert outcome.endswith("K best") == (each.score is not None and not kept)
    kinds = {outcome.split(",")[0].rstrip("0123456789.-") for outcome in seen.values()}
    expected = {"pruned", "continues as hypothesis ", "finished", "live when the search stopped"}
    assert expected <= kinds


def test_decoder_step_ends_with_logits_that_exclude_padding_and_bos(search: SearchTrace) -> None:
    for position, steps in enumerate(search.decoder):
        logits = steps[-1].get("result")
        assert logits.shape == (3, 2, 5)
        assert (logits[..., :2] < -1e30).all()  # padding and BOS
        for number, row in enumerate(search.rows):
            for each in row.steps[position].candidates if position < len(row.steps) else []:
                exponentials = np.exp(logits[number, each.parent])
                expected = exponentials[each.token] / exponentials.sum()
                assert each.probability == pytest.approx(expected, abs=1e-5)


def test_row_continues_exactly_while_it_can_still_improve(search: SearchTrace) -> None:
    lengths = [len(row.steps) for row in search.rows]
    assert len(set(lengths)) > 1  # otherwise no row stops before another
    for row in search.rows:
        assert all(step.continues and step.bound > step.worst for step in row.steps[:-1])
        last = row.steps[-1]
        assert not last.continues
        assert last.bound <= last.worst


def test_row_in_a_batch_equals_the_row_alone(model: TracedModel, search: SearchTrace) -> None:
    ids = [[4, EOS]]
    (alone,) = trace_search(model, make_batch(ids, ids).source).rows
    together = search.rows[1]
    assert alone.tokens == together.tokens
    assert [len(step.candidates) for step in alone.steps] == [
        len(step.candidates) for step in together.steps
    ]
    assert alone.score == pytest.approx(together.score, abs=1e-5)


def test_search_trace_has_the_decoder_of_every_step(search: SearchTrace) -> None:
    assert len(search.decoder) == max(len(row.steps) for row in search.rows)
    for position, steps in enumerate(search.decoder):
        (ancestry,) = [step.get("result") for step in steps if step.function == "_extend_ancestry"]
        assert ancestry.shape == (3, 2, (position + 1) * 2)
        # Each hypothesis has read one token per step.
        assert (ancestry.sum(axis=-1) == position + 1).all()
        weights = [step for step in steps if step.function == "attention_weights"]
        assert [step.variables[0].letters for step in weights] == ["B H K T*K", "B H K S"]
    assert {step.stage for step in search.encoder} == {"encode", ""}


def test_empty_sentence_has_no_search_steps(model: TracedModel) -> None:
    ids = [[EOS]]
    (row,) = trace_search(model, make_batch(ids, ids).source).rows
    assert (row.steps, row.tokens, row.score, row.translation) == ([], [], 0.0, "")
