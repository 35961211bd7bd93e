"""The steps of a computation: the recorded calls in order, with layer, tensors and weights."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tfnmt.runtime.recorder import Call
from tfnmt.tracing.mixing import measure_mixing
from tfnmt.tracing.paper import RESULT, Entry, find_entry

MODEL = "transformer/"
"""Prefix of the paths of all layers and weights."""

STAGES = ("encode", "decode", "decode_step", "logits")
"""Methods of the Transformer that a step can belong to."""

AXES = {
    "B": "sentences",
    "S": "source positions",
    "T": "target positions",
    "pos": "positions",
    "K": "hypotheses",
    "T*K": "tokens read by all hypotheses",
    "H": "heads",
    "D": "d_model",
    "F": "d_ff",
    "P": "projections",
    "N": "positions of all sentences",
    "V": "tokens of the vocabulary",
}
"""Meaning of the letters of a tensor's axes."""


class Variable(NamedTuple):
    """A tensor under its name in the code."""

    name: str
    letters: str  # of its axes, see AXES
    values: np.ndarray


class Parameter(NamedTuple):
    """A weight that a step uses."""

    name: str
    shape: tuple[int, ...]


class Step(NamedTuple):
    """A step of the computation."""

    stage: str  # one of STAGES; "" outside of them
    path: str  # path of the layer: "decoder/layer_0/feed_forward"
    function: str
    entry: Entry
    variables: list[Variable]
    mask: np.ndarray | None  # of the attention scores; True = attend
    parameters: list[Parameter]
    mixing: np.ndarray | None  # [B, T, S] whether output position t depends on input position s

    def get(self, name: str) -> np.ndarray:
        """Return the tensor of that name."""
        return next(variable.values for variable in self.variables if variable.name == name)


def list_steps(part: Call, root: Call) -> list[Step]:
    """List the steps below a call in order.

    Args:
        part: The call.
        root: The whole recording. It says which layers a fused projection consists of.
    """
    fused = {
        id(call.result): call.arguments["projections"] for call in root.find("fuse_projections")
    }
    return list(_steps(part, _Context("", "", fused)))


class _Context(NamedTuple):
    """The position of a call, inherited from the calls around it."""

    stage: str
    path: str
    fused: dict[int, Sequence[Any]]  # layers of each fused projection, by the id of the projection


def _steps(call: Call, context: _Context) -> Iterator[Step]:
    owner, _, method = call.function.rpartition(".")
    if owner == "Transformer" and method in STAGES:
        context = context._replace(stage=method)
    path = getattr(call.owner, "path", "")
    if path.startswith(MODEL):
        context = context._replace(path=path.removeprefix(MODEL))
    entry = find_entry(call.function, call.owner)
    if entry is not None:
        yield _step(call, entry, context)
    for below in call.calls:
        yield from _steps(below, context)


def _step(call: Call, entry: Entry, context: _Context) -> Step:
    mask = call.arguments["mask"] if call.function == "attention_weights" else None
    return Step(
        context.stage,
        context.path,
        call.function,
        entry,
        [_variable(call, name, _letters(axes, context)) for name, axes in entry.axes.items()],
        None if mask is None else np.asarray(mask),
        _parameters(call, context),
        measure_mixing(call) if context.stage in ("encode", "decode") else None,
    )


def _variable(call: Call, name: str, letters: str) -> Variable:
    value = call.result if name == RESULT else call.variables[name]
    return Variable(name, letters, np.asarray(value))


def _letters(axes: str, context: _Context) -> str:
    """Replace the letters of queries (T) and keys (S) by the axes that they are in this step."""
    names = {}
    if context.stage == "encode":
        names = {"T": "S"}
    elif context.stage == "decode_step":
        names = {"T": "K", "N": "B*K"}
        if "cross_attention" not in context.path:
            names["S"] = "T*K"
    elif "self_attention" in context.path:
        names = {"S": "T"}
    return re.sub("[A-Z]", lambda letter: names.get(letter[0], letter[0]), axes)


def _parameters(call: Call, context: _Context) -> list[Parameter]:
    """Return the weights that the function uses itself, without those of the layers it calls."""
    layers: Sequence[Any] = ()
    if "fused" in call.arguments:
        layers = context.fused[id(call.arguments["fused"])]
    elif call.function.startswith(("Dense.", "LayerNorm.", "Embedding.")):
        layers = [call.owner]
    return [
        Parameter(weight.path.removeprefix(MODEL), tuple(weight.shape))
        for layer in layers
        for weight in layer.weights
    ]
