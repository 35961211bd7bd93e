"""The search, followed: what each step could choose from, and what became of it.

It goes by the names that tfnmt/decoding/search.py gives its functions and their variables.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

import tfnmt.decoding.search
import tfnmt.decoding.searcher
import tfnmt.model
from tfnmt.data.preparation.tokenizer import EOS
from tfnmt.decoding.search import IMPOSSIBLE, length_penalty
from tfnmt.tracing.recorder import Call, recording
from tfnmt.tracing.steps import Step, list_steps
from tfnmt.tracing.subject import Subject

SHOWN = 4
"""Pieces that greedy search passes over, and that are shown in spite of it."""


class Candidate(NamedTuple):
    """A way to go on."""

    parent: int  # the live hypothesis that it goes on from
    token: int
    probability: float  # of the token behind its parent
    log_prob: float  # of the hypothesis up to the token
    slot: int | None  # the live hypothesis that it becomes; None where it ends or is pruned
    score: float | None  # where it ended: log probability over length penalty


class Ended(NamedTuple):
    """A hypothesis that counts."""

    tokens: list[int]
    score: float


class BeamStep(NamedTuple):
    """A step of a sentence's search."""

    position: int
    candidates: list[Candidate]  # the likeliest first
    live: list[float]  # log probabilities of the hypotheses that go on, by their slots
    finished: list[Ended]  # the best so far, the best first
    bound: float  # the best score that a live hypothesis can still come to
    worst: float  # the score that it would have to beat
    goes_on: bool


def describe_fate(candidate: Candidate, step: BeamStep) -> str:
    """What became of a candidate of a step, in words."""
    if candidate.score is not None:
        counts = any(ended.score == candidate.score for ended in step.finished)
        return f"finished, score {candidate.score:.4f}" + ("" if counts else ", K are better")
    if candidate.slot is not None and step.goes_on:
        return f"goes on as hypothesis {candidate.slot}"
    if candidate.slot is not None:
        return "live when the search stopped"
    return "pruned: only the K likeliest may end" if candidate.token == EOS else "pruned"


class RowSearch(NamedTuple):
    """The search of a sentence's translation."""

    steps: list[BeamStep]
    tokens: list[int]  # what it found, without padding
    score: float
    translation: str


class SearchTrace(NamedTuple):
    """The search of a batch's translations."""

    rows: list[RowSearch]
    encoder: list[Step]
    decoder: list[list[Step]]  # what it does at each position, for all hypotheses at once


def follow_search(subject: Subject, source: np.ndarray) -> SearchTrace:
    """Searches as the subject does, in Python instead of a graph, for all to be seen."""
    tf.config.run_functions_eagerly(True)
    try:
        with recording(tfnmt.model, tfnmt.decoding.search, tfnmt.decoding.searcher) as whole:
            found = subject.search(tf.constant(source))
    finally:
        tf.config.run_functions_eagerly(False)
    searches = list(whole.find("beam_search", "_follow"))
    read = _read_beam if searches[0].function == "beam_search" else _read_greedy
    rows = []
    for row, (ids, score) in enumerate(
        zip(found["tokens"].numpy().tolist(), found["score"].numpy().tolist(), strict=True)
    ):
        tokens = [number for number in ids if number]
        rows.append(RowSearch(read(searches[0], row), tokens, score, subject.decode(tokens)))
    encoder, *_ = whole.find("Transformer.start_search")
    calls = zip(
        whole.find("Transformer.decode_step"), whole.find("OutputProjection.logits"), strict=True
    )
    decoder = [
        [*list_steps(step, whole), _logits(output, len(subject.pieces))] for step, output in calls
    ]
    return SearchTrace(rows, list_steps(encoder, whole), decoder)


def _logits(output: Call, size: int) -> Step:
    """The last step to the pieces, without those that only fill the vocabulary up."""
    (step,) = list_steps(output, output)
    hidden, logits = step.variables
    shown = logits._replace(values=logits.values[..., :size])
    return step._replace(side="decode_step", variables=[hidden, shown])


# --- Beam -----------------------------------------------------------------------------------------


def _read_beam(search: Call, row: int) -> list[BeamStep]:
    """The steps of a row: others of the batch may go on when it is through."""
    checks = list(search.find("_can_improve"))
    bodies = search.find("beam_search.<locals>.body")
    steps = []
    for position, (body, before, after) in enumerate(zip(bodies, checks, checks[1:], strict=False)):
        if not before.result[row]:
            break
        steps.append(_read_step(body, after, row, position))
    return steps


def _read_step(body: Call, check: Call, row: int, position: int) -> BeamStep:
    chosen, kept, ended = (
        next(body.find(name)) for name in ("_candidates", "_keep_live", "_keep_finished")
    )
    return BeamStep(
        position,
        list(_candidates(chosen, kept, ended, row)),
        _finite(kept.result.log_probs[row]),
        _ended(ended.result, row),
        float(check.names["bound"][row]),
        float(check.names["worst"][row]),
        bool(check.result[row]),
    )


def _candidates(chosen: Call, kept: Call, ended: Call, row: int) -> Iterator[Candidate]:
    """The candidates of a step and what became of them."""
    live = kept.result
    slots = {
        (int(parent), int(token)): slot
        for slot, (parent, token, log_prob) in enumerate(
            zip(live.parents[row], live.last[row], live.log_probs[row], strict=True)
        )
        if np.isfinite(log_prob)
    }
    before = chosen.arguments["live"].log_probs[row]
    scores = ended.names["ended"][row]  # of the first K candidates; -inf where one goes on
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


def _ended(finished: Any, row: int) -> list[Ended]:
    return [
        Ended([number for number in tokens if number], score)
        for tokens, score in zip(
            finished.tokens[row].numpy().tolist(), finished.scores[row].numpy().tolist(),
            strict=True,
        )
        if np.isfinite(score)
    ]  # fmt: skip


def _finite(values: Any) -> list[float]:
    return [value for value in values.numpy().tolist() if np.isfinite(value)]


# --- Greedy ---------------------------------------------------------------------------------------


def _read_greedy(search: Call, row: int) -> list[BeamStep]:
    """The same where there is but one hypothesis: what is likeliest goes on or ends."""
    alpha = search.arguments["search"].length_penalty
    steps: list[BeamStep] = []
    tokens: list[int] = []
    for position, body in enumerate(search.find("_follow.<locals>.body")):
        if body.names["state"].done[row]:
            break
        chosen = int(body.names["chosen"][row])
        tokens.append(chosen)
        log_prob = float(body.result.log_probs[row])
        done = bool(body.result.done[row])
        score = log_prob / float(length_penalty(position + 1, alpha))
        candidates = list(_greedy_candidates(body, row, score))
        live = [] if done else [log_prob]
        finished = [Ended(list(tokens), score)] if done else []
        steps.append(BeamStep(position, candidates, live, finished, score, -np.inf, not done))
    return steps


def _greedy_candidates(body: Call, row: int, score: float) -> Iterator[Candidate]:
    """The piece that was chosen, and the likeliest of those that were not."""
    logits, before = body.names["logits"][row], float(body.names["state"].log_probs[row])
    log_probs = tf.nn.log_softmax(logits).numpy()
    chosen = int(body.names["chosen"][row])
    others = [number for number in np.argsort(-log_probs)[: SHOWN + 1].tolist() if number != chosen]
    for number in (chosen, *others[:SHOWN]):
        if logits[number] > IMPOSSIBLE:
            log_prob = float(log_probs[number])
            ends = number == EOS
            slot = 0 if number == chosen and not ends else None
            final = score if number == chosen and ends else None
            probability = float(np.exp(log_prob))
            yield Candidate(0, number, probability, before + log_prob, slot, final)
