"""Traces the search: the candidates of each step, and the outcome of each candidate.

It relies on the names of functions and variables in tfnmt/decoding/search.py.

Letters: K hypotheses per sentence.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

import tfnmt.decoding.search
import tfnmt.decoding.searcher
import tfnmt.model
from tfnmt.data.preparation.tokenizer import EOS
from tfnmt.decoding.search import EXCLUDED_LOGIT, length_penalty
from tfnmt.runtime.recorder import Call, recording
from tfnmt.tracing.steps import Step, list_steps
from tfnmt.tracing.traced_model import TracedModel

SHOWN_ALTERNATIVES = 4
"""Number of tokens shown at each step of greedy search in addition to the chosen one."""


class Candidate(NamedTuple):
    """A possible continuation of a live hypothesis."""

    parent: int  # the live hypothesis that it continues
    token: int  # id
    probability: float  # of the token, given its parent
    log_prob: float  # of the hypothesis, this token included
    slot: int | None  # index of the live hypothesis that it becomes; None if it ends or is pruned
    score: float | None  # of a finished hypothesis: log probability / length penalty


class FinishedHypothesis(NamedTuple):
    """A hypothesis that is among the K best finished ones."""

    tokens: list[int]
    score: float


class BeamStep(NamedTuple):
    """A step of the search for one sentence."""

    position: int
    candidates: list[Candidate]  # most probable first
    live: list[float]  # log probabilities of the live hypotheses, by slot
    finished: list[FinishedHypothesis]  # so far, best first
    bound: float  # the highest score that a live hypothesis can still reach
    worst: float  # the score that it must exceed
    continues: bool  # whether the search continues after this step


def describe_outcome(candidate: Candidate, step: BeamStep) -> str:
    """Describe what the search did with a candidate of a step."""
    if candidate.score is not None:
        is_kept = any(finished.score == candidate.score for finished in step.finished)
        outcome = f"finished, score {candidate.score:.4f}"
        return outcome if is_kept else f"{outcome}, not among the K best"
    if candidate.slot is not None and step.continues:
        return f"continues as hypothesis {candidate.slot}"
    if candidate.slot is not None:
        return "live when the search stopped"
    if candidate.token == EOS:
        return "pruned: only the K most probable candidates can end"
    return "pruned"


class RowSearch(NamedTuple):
    """The search for the translation of one sentence."""

    steps: list[BeamStep]
    tokens: list[int]  # ids of the best hypothesis, without padding
    score: float
    translation: str


class SearchTrace(NamedTuple):
    """The search for the translations of a batch."""

    rows: list[RowSearch]
    encoder: list[Step]
    decoder: list[list[Step]]  # for each position, the steps of all hypotheses together


def trace_search(model: TracedModel, source: np.ndarray) -> SearchTrace:
    """Run the search of the model in Python instead of a graph, and record it.

    Args:
        model: The model.
        source: [B, S] ids.
    """
    tf.config.run_functions_eagerly(True)
    try:
        with recording(tfnmt.model, tfnmt.decoding.search, tfnmt.decoding.searcher) as root:
            outputs = model.search(tf.constant(source))
    finally:
        tf.config.run_functions_eagerly(False)
    searches = list(root.find("beam_search", "_search_single"))
    read = _read_beam if searches[0].function == "beam_search" else _read_greedy
    rows = []
    for row, (ids, score) in enumerate(
        zip(outputs["tokens"].numpy().tolist(), outputs["score"].numpy().tolist(), strict=True)
    ):
        tokens = [number for number in ids if number]
        rows.append(RowSearch(read(searches[0], row), tokens, score, model.decode(tokens)))
    encoder, *_ = root.find("Transformer.start_decoding")
    calls = zip(
        root.find("Transformer.decode_step"), root.find("OutputProjection.logits"), strict=True
    )
    decoder = [
        [*list_steps(step, root), _logits(output, len(model.vocabulary))] for step, output in calls
    ]
    return SearchTrace(rows, list_steps(encoder, root), decoder)


def _logits(output: Call, size: int) -> Step:
    """Return the output projection as a step, without the columns that pad the vocabulary."""
    (step,) = list_steps(output, output)
    hidden, logits = step.variables
    shown = logits._replace(values=logits.values[..., :size])
    return step._replace(stage="decode_step", variables=[hidden, shown])


# --- Beam search ----------------------------------------------------------------------------------


def _read_beam(search: Call, row: int) -> list[BeamStep]:
    """Return the steps of a row. Other rows of the batch may take more steps."""
    checks = list(search.find("_can_improve"))
    bodies = search.find("beam_search.<locals>.body")
    steps = []
    for position, (body, before, after) in enumerate(zip(bodies, checks, checks[1:], strict=False)):
        if not before.result[row]:
            break
        steps.append(_read_step(body, after, row, position))
    return steps


def _read_step(body: Call, check: Call, row: int, position: int) -> BeamStep:
    chosen, kept, finished = (
        next(body.find(name)) for name in ("_candidates", "_keep_live", "_keep_finished")
    )
    return BeamStep(
        position,
        list(_candidates(chosen, kept, finished, row)),
        _finite(kept.result.log_probs[row]),
        _finished_hypotheses(finished.result, row),
        float(check.variables["bound"][row]),
        float(check.variables["worst"][row]),
        bool(check.result[row]),
    )


def _candidates(chosen: Call, kept: Call, finished: Call, row: int) -> Iterator[Candidate]:
    """Yield the candidates of a step, each with its outcome."""
    live = kept.result
    slots = {
        (int(parent), int(token)): slot
        for slot, (parent, token, log_prob) in enumerate(
            zip(live.parents[row], live.last[row], live.log_probs[row], strict=True)
        )
        if np.isfinite(log_prob)
    }
    before = chosen.arguments["live"].log_probs[row]
    scores = finished.variables["ended"][row]  # of the first K candidates; -inf if one continues
    for rank, (token, log_prob, parent) in enumerate(
        zip(*(each[row].numpy().tolist() for each in chosen.result), strict=True)
    ):
        if not np.isfinite(log_prob):
            continue
        score = float(scores[rank]) if rank < len(scores) else -np.inf
        yield Candidate(
            parent,
            token,
            float(np.exp(log_prob - before[parent])),
            log_prob,
            slots.get((parent, token)),
            score if np.isfinite(score) else None,
        )


def _finished_hypotheses(finished: Any, row: int) -> list[FinishedHypothesis]:
    hypotheses = zip(
        finished.tokens[row].numpy().tolist(), finished.scores[row].numpy().tolist(), strict=True
    )
    return [
        FinishedHypothesis([number for number in tokens if number], score)
        for tokens, score in hypotheses
        if np.isfinite(score)
    ]


def _finite(values: Any) -> list[float]:
    return [value for value in values.numpy().tolist() if np.isfinite(value)]


# --- Greedy search --------------------------------------------------------------------------------


def _read_greedy(search: Call, row: int) -> list[BeamStep]:
    """Return the steps of a row in greedy search, which has a single hypothesis."""
    alpha = search.arguments["parameters"].length_penalty
    steps: list[BeamStep] = []
    tokens: list[int] = []
    for position, body in enumerate(search.find("_search_single.<locals>.body")):
        if body.variables["state"].done[row]:
            break
        chosen = int(body.variables["chosen"][row])
        tokens.append(chosen)
        log_prob = float(body.result.log_probs[row])
        done = bool(body.result.done[row])
        score = log_prob / float(length_penalty(position + 1, alpha))
        candidates = list(_greedy_candidates(body, row, score))
        live = [] if done else [log_prob]
        finished = [FinishedHypothesis(list(tokens), score)] if done else []
        steps.append(BeamStep(position, candidates, live, finished, score, -np.inf, not done))
    return steps


def _greedy_candidates(body: Call, row: int, score: float) -> Iterator[Candidate]:
    """Yield the chosen token, and the most probable ones of the others."""
    logits = body.variables["logits"][row]
    before = float(body.variables["state"].log_probs[row])
    log_probs = tf.nn.log_softmax(logits).numpy()
    chosen = int(body.variables["chosen"][row])
    ranked = np.argsort(-log_probs)[: SHOWN_ALTERNATIVES + 1].tolist()
    others = [number for number in ranked if number != chosen]
    for number in (chosen, *others[:SHOWN_ALTERNATIVES]):
        if logits[number] > EXCLUDED_LOGIT:
            log_prob = float(log_probs[number])
            ends = number == EOS
            slot = 0 if number == chosen and not ends else None
            final = score if number == chosen and ends else None
            probability = float(np.exp(log_prob))
            yield Candidate(0, number, probability, before + log_prob, slot, final)
