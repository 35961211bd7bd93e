"""The steps of a calculation: what was recorded, in order, with its place, shapes and weights."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tfnmt.tracing.mixing import mixing
from tfnmt.tracing.paper import RESULT, Entry, find_entry
from tfnmt.tracing.recorder import Call

MODEL = "transformer/"
"""What the path of every layer begins with."""

SIDES = ("encode", "decode", "decode_step", "logits")
"""Functions of the Transformer that a step can belong to."""


LETTERS = {
    "B": "sentences", "S": "source positions", "T": "target positions", "pos": "positions",
    "K": "hypotheses", "T*K": "what they have read", "H": "heads", "D": "d_model",
    "F": "d_ff", "P": "projections", "N": "all positions of all sentences", "V": "pieces",
}  # fmt: skip
"""What the letters of a tensor's axes stand for."""


class Variable(NamedTuple):
    """A tensor under the name that the code gives it.

    LETTERS says what the letters of its axes stand for.
    """

    name: str
    letters: str  # of its axes
    values: np.ndarray


class Parameter(NamedTuple):
    """A weight that a step uses."""

    name: str
    shape: tuple[int, ...]


class Step(NamedTuple):
    """A step of the calculation."""

    side: str  # one of SIDES, or "" before and between them
    place: str  # the path of its layer: "decoder/layer_0/feed_forward"
    function: str
    entry: Entry
    variables: list[Variable]
    mask: np.ndarray | None  # of attention's scores; True = attend
    parameters: list[Parameter]
    mixing: np.ndarray | None  # [B, T, S] what of the output hangs on what of the input

    def get(self, name: str) -> np.ndarray:
        """The tensor of that name."""
        return next(variable.values for variable in self.variables if variable.name == name)


def list_steps(part: Call, whole: Call) -> list[Step]:
    """All steps below a part of what was recorded, in order."""
    joined = {id(call.result): call.arguments["projections"] for call in whole.find("join")}
    return list(_steps(part, _Where("", "", joined)))


class _Where(NamedTuple):
    """What a call inherits from those around it."""

    side: str
    place: str
    joined: dict[int, Sequence[Any]]  # the projections that were joined, by what came of it


def _steps(call: Call, where: _Where) -> Iterator[Step]:
    owner, _, method = call.function.rpartition(".")
    if owner == "Transformer" and method in SIDES:
        where = where._replace(side=method)
    path = getattr(call.owner, "path", "")
    if path.startswith(MODEL):
        where = where._replace(place=path.removeprefix(MODEL))
    entry = find_entry(call.function, call.owner)
    if entry is not None:
        yield _step(call, entry, where)
    for below in call.calls:
        yield from _steps(below, where)


def _step(call: Call, entry: Entry, where: _Where) -> Step:
    mask = call.arguments["mask"] if call.function == "attention_weights" else None
    return Step(
        where.side,
        where.place,
        call.function,
        entry,
        [_variable(call, name, _letters(axes, where)) for name, axes in entry.shows.items()],
        None if mask is None else np.asarray(mask),
        _parameters(call, where),
        mixing(call) if where.side in ("encode", "decode") else None,
    )


def _variable(call: Call, name: str, letters: str) -> Variable:
    value = call.result if name == RESULT else call.names[name]
    return Variable(name, letters, np.asarray(value))


def _letters(axes: str, where: _Where) -> str:
    """The axes by what queries (T) and keys (S) are here."""
    names = {}
    if where.side == "encode":
        names = {"T": "S"}
    elif where.side == "decode_step":
        names = {"T": "K", "N": "B*K"}
        if "cross_attention" not in where.place:
            names["S"] = "T*K"
    elif "self_attention" in where.place:
        names = {"S": "T"}
    return re.sub("[A-Z]", lambda letter: names.get(letter[0], letter[0]), axes)


def _parameters(call: Call, where: _Where) -> list[Parameter]:
    """The weights that the function itself uses, not those of the layers that it calls."""
    layers: Sequence[Any] = ()
    if "joined" in call.arguments:
        layers = where.joined[id(call.arguments["joined"])]
    elif call.function.startswith(("Dense.", "LayerNorm.", "Embedding.")):
        layers = [call.owner]
    return [
        Parameter(weight.path.removeprefix(MODEL), tuple(weight.shape))
        for layer in layers
        for weight in layer.weights
    ]
