"""A trace: what became of a batch, from its ids to the loss, and to its translation."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tfnmt.data.preparation.tokenizer import EOS
from tfnmt.tracing.beam import SearchTrace, follow_search
from tfnmt.tracing.forward import Forward, Losses, follow_forward, measure
from tfnmt.tracing.steps import LETTERS, Step
from tfnmt.tracing.subject import Subject, make_batch

FIRST, LAST = 7, 3
"""Shapes that are told: layers after the first have the same ones again."""

Loss = Callable[[np.ndarray, Any, np.ndarray, float], Any]
"""hidden [B, T, D], table [V, D], target_out [B, T], smoothing -> the sums that training takes."""


class Trace(NamedTuple):
    """All that is told of a batch."""

    title: str  # which model
    subject: Subject
    given: bool  # whether there are targets; else the forward pass reads the translations
    forward: Forward
    losses: Losses
    sums: Any  # the same losses as training adds them up
    search: SearchTrace


def follow(
    title: str,
    subject: Subject,
    ids: tuple[list[list[int]], list[list[int]]],
    loss: Loss,
    smoothing: float,
) -> Trace:
    """Follows sources and targets, eos included; without targets those that are found."""
    sources, targets = ids
    search = follow_search(subject, make_batch(sources, sources).source)
    found = [row.tokens or [EOS] for row in search.rows]
    batch = make_batch(sources, targets or found)
    forward = follow_forward(subject.transformer, batch)
    table = subject.transformer.output_embedding.table
    sums = loss(forward.hidden, table, batch.target_out, smoothing)
    return Trace(
        title,
        subject,
        bool(targets),
        forward,
        measure(forward.logits, batch.target_out, smoothing),
        sums,
        search,
    )


def describe_shapes(steps: list[Step]) -> str:
    """How shapes change from step to step: the first of them, and the last."""
    chain: list[str] = []
    for step in steps:
        for variable in step.variables:
            if variable.letters.startswith("B ") and variable.values.dtype.kind == "f":
                shape = describe_shape(variable.values.shape)
                chain += [shape] if chain[-1:] != [shape] else []
    return " -> ".join([*chain[:FIRST], "...", *chain[-LAST:]])


def describe_letters(steps: list[Step]) -> str:
    """What the letters of these steps' axes stand for."""
    used = {letter for step in steps for each in step.variables for letter in each.letters.split()}
    used |= {part for letter in used for part in re.split("[/*]", letter)}
    return ", ".join(f"{letter} {name}" for letter, name in LETTERS.items() if letter in used)


def describe_shape(shape: tuple[int, ...]) -> str:
    """`(2,3,8)`."""
    return f"({','.join(map(str, shape))})"
