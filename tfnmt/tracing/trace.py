"""Traces a batch from its ids to its loss and to its translation."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tfnmt.data.preparation.tokenizer import EOS
from tfnmt.tracing.beam import SearchTrace, trace_search
from tfnmt.tracing.forward import ForwardTrace, Losses, compute_losses, trace_forward
from tfnmt.tracing.steps import AXES, Step
from tfnmt.tracing.traced_model import TracedModel, make_batch

FIRST_SHAPES, LAST_SHAPES = 7, 3
"""Number of shapes in a summary. The layers after the first one have the same shapes again."""

Loss = Callable[[np.ndarray, Any, np.ndarray, float], Any]
"""hidden [B, T, D], table [V, D], target_out [B, T], smoothing -> the loss sums of training."""


class Trace(NamedTuple):
    """Everything that a trace shows of a batch."""

    title: str  # of the model
    model: TracedModel
    has_targets: bool  # if False, the forward pass reads the model's own translations
    forward: ForwardTrace
    losses: Losses
    training_sums: Any  # the same losses as computed by training
    search: SearchTrace


def make_trace(
    title: str,
    model: TracedModel,
    ids: tuple[list[list[int]], list[list[int]]],
    loss: Loss,
    smoothing: float,
) -> Trace:
    """Trace the search and the forward pass of a batch.

    Args:
        title: Title of the model.
        model: The model.
        ids: Ids of sources and of targets, EOS included. If there are no targets, the forward pass
            reads the translations of the search.
        loss: The loss function of training.
        smoothing: Epsilon of label smoothing.
    """
    sources, targets = ids
    search = trace_search(model, make_batch(sources, sources).source)
    translations = [row.tokens or [EOS] for row in search.rows]
    batch = make_batch(sources, targets or translations)
    forward = trace_forward(model.transformer, batch)
    table = model.transformer.output_embedding.table
    training_sums = loss(forward.hidden, table, batch.target_out, smoothing)
    return Trace(
        title,
        model,
        bool(targets),
        forward,
        compute_losses(forward.logits, batch.target_out, smoothing),
        training_sums,
        search,
    )


def describe_shapes(steps: list[Step]) -> str:
    """Return the sequence of shapes through the steps: the first ones and the last ones."""
    chain: list[str] = []
    for step in steps:
        for variable in step.variables:
            if variable.letters.startswith("B ") and variable.values.dtype.kind == "f":
                shape = format_shape(variable.values.shape)
                chain += [shape] if chain[-1:] != [shape] else []
    return " -> ".join([*chain[:FIRST_SHAPES], "...", *chain[-LAST_SHAPES:]])


def describe_axes(steps: list[Step]) -> str:
    """Return the meaning of the letters of the steps' axes."""
    used = {letter for step in steps for each in step.variables for letter in each.letters.split()}
    used |= {part for letter in used for part in re.split("[/*]", letter)}
    return ", ".join(f"{letter} {meaning}" for letter, meaning in AXES.items() if letter in used)


def format_shape(shape: tuple[int, ...]) -> str:
    """Format a shape as in `(2,3,8)`."""
    return f"({','.join(map(str, shape))})"
