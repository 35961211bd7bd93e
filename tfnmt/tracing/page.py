"""A trace as a page to play with: one file, which asks nothing of any network.

The page computes anew what a mask or a nudged logit changes, from the numbers that are in it.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from tfnmt.tracing.beam import RowSearch, describe_fate
from tfnmt.tracing.forward import Losses
from tfnmt.tracing.mixing import describe_mixing
from tfnmt.tracing.steps import Step, Variable
from tfnmt.tracing.subject import Subject
from tfnmt.tracing.tensors import FEW, WIDE, is_whole, list_blocks
from tfnmt.tracing.trace import Trace, describe_letters, describe_shapes

TEMPLATE = Path(__file__).with_name("page.html")
PLACE = "{{trace}}"

SHOWN_LOGITS = 7
"""Of each position, the largest; what the others come to is summed up."""

DIGITS = 5

Json = dict[str, Any]


def render(trace: Trace) -> str:
    """The whole page."""
    # No "</script>", whatever a piece holds.
    data = json.dumps(_data(trace), ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    return TEMPLATE.read_text(encoding="utf-8").replace(PLACE, data)


def _data(trace: Trace) -> Json:
    subject, steps = trace.subject, trace.forward.steps
    return {
        "title": trace.title,
        "given": trace.given,
        "shapes": describe_shapes(steps),
        "letters": describe_letters(steps),
        "vocabulary": subject.pieces if len(subject.pieces) <= WIDE else None,
        "batch": [
            {name: subject.names(ids[row].tolist())
             for name, ids in trace.forward.batch._asdict().items()}
            for row in range(len(trace.forward.batch.source))
        ],
        "blocks": [
            {"name": block.name, "count": block.count, "formula": block.formula}
            for block in list_blocks(subject.transformer)
        ],
        "steps": [_step(step) for step in steps],
        "attention": [_attention(step) for step in steps if step.function == "attention_weights"],
        "loss": _loss(trace.losses, subject),
        "search": [_search(row, subject) for row in trace.search.rows],
        "alpha": subject.decoding.length_penalty,
    }  # fmt: skip


def _step(step: Step) -> Json:
    return {
        "side": step.side,
        "place": step.place or step.side,
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
    """What hides some of an attention's scores, as a tensor of the like axes, where it is small."""
    if step.mask is None or not is_whole(step.mask):
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
    shown = values if is_whole(values) else values.ravel()[:FEW]
    return {
        "name": variable.name,
        "letters": variable.letters.split(),
        "shape": values.shape,
        "whole": is_whole(values),
        "values": _rounded(shown.astype("float64").ravel()),
    }


def _attention(step: Step) -> Json:
    """Scores before the mask: scores [B, H, T, S] and mask [B, T, S]."""
    scores = step.get("scores")
    assert step.mask is not None
    rows, _, queries, keys = scores.shape
    source = step.side == "encode"
    return {
        "place": step.place,
        "queries": "source" if source else "target_in",
        "keys": "source" if source or "cross_attention" in step.place else "target_in",
        "scores": _rounded(scores),
        "mask": np.broadcast_to(step.mask[:, 0], (rows, queries, keys)).astype(int).tolist(),
    }


def _loss(losses: Losses, subject: Subject) -> Json:
    return {
        "smoothing": losses.smoothing,
        "size": losses.logits.shape[-1],
        "tokens": [
            _token(losses, int(row), int(position), subject)
            for row, position in np.argwhere(losses.real)
        ],
    }


def _token(losses: Losses, row: int, position: int, subject: Subject) -> Json:
    """The largest logits of a position, the right one among them, and what the rest comes to."""
    logits, right = losses.logits[row, position], int(losses.target[row, position])
    shown = sorted({right, *np.argsort(-logits)[:SHOWN_LOGITS].tolist()}, key=lambda i: -logits[i])
    rest = np.delete(logits, shown)
    return {
        "row": row,
        "position": position,
        "right": shown.index(right),
        "pieces": subject.names(shown),
        "logits": logits[shown].tolist(),
        "rest": {"exponentials": np.exp(rest - logits.max()).sum(), "sum": rest.sum()},
        "smoothed": losses.smoothed[row, position],
        "cross_entropy": losses.cross_entropy[row, position],
    }


def _search(search: RowSearch, subject: Subject) -> Json:
    return {
        "found": subject.names(search.tokens),
        "score": search.score,
        "translation": search.translation,
        "steps": [
            {
                "position": step.position,
                "candidates": [
                    {
                        **each._asdict(),
                        "piece": subject.pieces[each.token],
                        "fate": describe_fate(each, step),
                    }
                    for each in step.candidates
                ],
                "finished": [
                    {"pieces": subject.names(each.tokens), "score": each.score}
                    for each in step.finished
                ],
                "bound": _finite(step.bound),
                "worst": _finite(step.worst),
            }
            for step in search.steps
        ],
    }


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _rounded(values: np.ndarray) -> Any:
    return np.round(values.astype("float64"), DIGITS).tolist()
