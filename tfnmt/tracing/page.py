"""A trace as an interactive page: one file, which makes no network requests.

The page recomputes the effects of a mask and of a changed logit from the numbers that it contains.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from tfnmt.tracing.beam import BeamStep, RowSearch, describe_outcome
from tfnmt.tracing.forward import Losses
from tfnmt.tracing.mixing import describe_mixing
from tfnmt.tracing.steps import Step, Variable
from tfnmt.tracing.tensors import MAX_WIDTH, PREVIEW, is_small, list_parameter_blocks
from tfnmt.tracing.trace import Trace, describe_axes, describe_shapes
from tfnmt.tracing.traced_model import TracedModel

TEMPLATE = Path(__file__).with_name("page.html")
PLACEHOLDER = "{{trace}}"

SHOWN_LOGITS = 7
"""Number of logits per position, largest first. The page has sums over all others."""

DIGITS = 5

Json = dict[str, Any]


def render(trace: Trace) -> str:
    """Return the whole page as HTML."""
    # Escape "<", so that no token can close the script element.
    data = json.dumps(_data(trace), ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    return TEMPLATE.read_text(encoding="utf-8").replace(PLACEHOLDER, data)


def _data(trace: Trace) -> Json:
    model, steps, batch = trace.model, trace.forward.steps, trace.forward.batch
    return {
        "title": trace.title,
        "has_targets": trace.has_targets,
        "shapes": describe_shapes(steps),
        "axes": describe_axes(steps),
        "vocabulary": model.vocabulary if len(model.vocabulary) <= MAX_WIDTH else None,
        "batch": [
            {name: model.token_strings(ids[row].tolist()) for name, ids in batch._asdict().items()}
            for row in range(len(batch.source))
        ],
        "blocks": [
            {"name": block.name, "count": block.count, "formula": block.formula}
            for block in list_parameter_blocks(model.transformer)
        ],
        "steps": [_step(step) for step in steps],
        "attention": [_attention(step) for step in steps if step.function == "attention_weights"],
        "loss": _loss(trace.losses, model),
        "search": [_search(row, model) for row in trace.search.rows],
        "alpha": model.decoding.length_penalty,
    }


def _step(step: Step) -> Json:
    return {
        "stage": step.stage,
        "path": step.path or step.stage,
        "function": step.function,
        "title": step.entry.title,
        "formula": step.entry.formula,
        "section": step.entry.section,
        "parameters": step.parameters,
        "mask": _mask(step),
        "tensors": [_tensor(variable) for variable in step.variables],
        "mixing": _mixing(step),
    }


def _mask(step: Step) -> Json | None:
    """Return the attention mask as a tensor with the axes of the scores, if it is small."""
    if step.mask is None or not is_small(step.mask):
        return None
    axes = zip(step.variables[0].letters.split(), step.mask.shape, strict=True)
    letters = " ".join(letter if length > 1 else "1" for letter, length in axes)
    return _tensor(Variable("mask", letters, step.mask))


def _mixing(step: Step) -> Json | None:
    if step.mixing is None:
        return None
    text = describe_mixing(step.function, step.mixing)
    return {"text": text, "rows": step.mixing.astype(int).tolist()}


def _tensor(variable: Variable) -> Json:
    values = variable.values
    shown = values if is_small(values) else values.ravel()[:PREVIEW]
    return {
        "name": variable.name,
        "letters": variable.letters.split(),
        "shape": values.shape,
        "whole": is_small(values),
        "values": _rounded(shown.astype("float64").ravel()),
    }


def _attention(step: Step) -> Json:
    """Return the scores [B, H, T, S] before masking, and the mask [B, T, S]."""
    scores = step.get("scores")
    assert step.mask is not None
    rows, _, queries, keys = scores.shape
    is_encoder = step.stage == "encode"
    return {
        "path": step.path,
        "queries": "source" if is_encoder else "target_in",
        "keys": "source" if is_encoder or "cross_attention" in step.path else "target_in",
        "scores": _rounded(scores),
        "mask": np.broadcast_to(step.mask[:, 0], (rows, queries, keys)).astype(int).tolist(),
    }


def _loss(losses: Losses, model: TracedModel) -> Json:
    return {
        "smoothing": losses.smoothing,
        "size": losses.logits.shape[-1],
        "predictions": [
            _prediction(losses, int(row), int(position), model)
            for row, position in np.argwhere(losses.real)
        ],
    }


def _prediction(losses: Losses, row: int, position: int, model: TracedModel) -> Json:
    """Return the largest logits of a position and the correct one, with sums over all others."""
    logits, correct = losses.logits[row, position], int(losses.target[row, position])
    largest = np.argsort(-logits)[:SHOWN_LOGITS].tolist()
    shown = sorted({correct, *largest}, key=lambda i: -logits[i])
    others = np.delete(logits, shown)
    return {
        "row": row,
        "position": position,
        "correct": shown.index(correct),
        "tokens": model.token_strings(shown),
        "logits": logits[shown].tolist(),
        "others": {"exponentials": np.exp(others - logits.max()).sum(), "sum": others.sum()},
        "smoothed": losses.smoothed[row, position],
        "cross_entropy": losses.cross_entropy[row, position],
    }


def _search(search: RowSearch, model: TracedModel) -> Json:
    return {
        "tokens": model.token_strings(search.tokens),
        "score": search.score,
        "translation": search.translation,
        "steps": [_beam_step(step, model) for step in search.steps],
    }


def _beam_step(step: BeamStep, model: TracedModel) -> Json:
    return {
        "position": step.position,
        "candidates": [
            {
                **candidate._asdict(),
                "token": model.vocabulary[candidate.token],
                "outcome": describe_outcome(candidate, step),
            }
            for candidate in step.candidates
        ],
        "finished": [
            {"tokens": model.token_strings(finished.tokens), "score": finished.score}
            for finished in step.finished
        ],
        "bound": _finite(step.bound),
        "worst": _finite(step.worst),
    }


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _rounded(values: np.ndarray) -> Any:
    return np.round(values.astype("float64"), DIGITS).tolist()
