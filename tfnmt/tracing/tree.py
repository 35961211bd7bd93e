"""The tree of a search as lines of text: what each step could choose from, and what was found."""

from collections.abc import Iterator, Sequence

import numpy as np

from tfnmt.data.tokenizer import BOS
from tfnmt.tracing.beam import BeamStep, RowSearch, describe_fate
from tfnmt.tracing.subject import Subject
from tfnmt.tracing.tensors import clip


def row_lines(search: RowSearch, subject: Subject) -> Iterator[str]:
    """The search of a sentence's translation: its steps, their tree, and the translation."""
    for step in search.steps:
        yield from _step(step, subject)
    yield ""
    yield "the tree: probability of each piece behind those before it"
    yield subject.pieces[BOS]
    yield from _tree(search.steps, 0, 0, "", subject)
    yield ""
    alpha = subject.decoding.length_penalty
    yield f"found      {' '.join(subject.names(search.tokens))}"
    yield f"score      {search.score:.4f} = log p / ((5 + {len(search.tokens)}) / 6)^{alpha:g}"
    yield f"text       {search.translation}"


def _step(step: BeamStep, subject: Subject) -> Iterator[str]:
    yield ""
    yield f"step {step.position}    {'from':>4} {'piece':<14} {'p':>8} {'log p so far':>13}"
    for candidate in step.candidates:
        piece = clip(subject.pieces[candidate.token], 14)
        yield (
            f"{'':10} {candidate.parent:>4} {piece:<14} {candidate.probability:8.4f} "
            f"{candidate.log_prob:13.4f}  {describe_fate(candidate, step)}"
        )
    for ended in step.finished:
        yield f"  finished {ended.score:9.4f}  {' '.join(subject.names(ended.tokens))}"
    verdict = "goes on" if step.goes_on else "stops"
    if np.isfinite(step.worst) and np.isfinite(step.bound):
        yield (
            f"  {verdict}: a live hypothesis can still come to {step.bound:.4f}, "
            f"and {step.worst:.4f} is to be beaten"
        )
    else:
        yield f"  {verdict}"


def _tree(
    steps: Sequence[BeamStep], depth: int, slot: int, indent: str, subject: Subject
) -> Iterator[str]:
    """What was tried behind a live hypothesis, and behind that."""
    if depth == len(steps):
        return
    tried = [each for each in steps[depth].candidates if each.parent == slot]
    for candidate in tried:
        last = candidate is tried[-1]
        piece = subject.pieces[candidate.token]
        note = "" if candidate.slot is not None else f"  {describe_fate(candidate, steps[depth])}"
        yield f"{indent}{'└─' if last else '├─'} {piece} {candidate.probability:.4f}{note}"
        if candidate.slot is not None:
            deeper = indent + ("   " if last else "│  ")
            yield from _tree(steps, depth + 1, candidate.slot, deeper, subject)
