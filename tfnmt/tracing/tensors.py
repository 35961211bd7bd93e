"""Tensors as lines of text: small ones whole, of large ones a few values."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from tfnmt.model.transformer import Transformer
from tfnmt.tracing.steps import MODEL, Variable

WHOLE, WIDE = 192, 32
"""The most numbers of a tensor that is shown whole, and of a row of it: the tiny model's are."""

COLUMNS = 8  # of a line
FEW = 6
NAME = 10  # width of a column of names
CELL = 8  # width of a number
LARGE, HUGE = 100, 1e6  # from there on without digits behind the point, and with an exponent

PLACES = {"H": "head", "K": "hypothesis", "N": "position", "T*K": "past"}
"""What a place on an axis is called, by the axis' letters."""

FLAT = {"N": "N", "B*K": "K"}
"""Axes that have all sentences one after another, and what each sentence has of them."""

Names = dict[str, Sequence[Sequence[str]]]
"""By the letters of an axis: what its places are called, for each sentence."""


def tensor_lines(variable: Variable, names: Names) -> Iterator[str]:
    """A line with name, shape and axes; the values of a small one below it, of others beside."""
    values = variable.values
    head = f"{variable.name:<10} {_shape(values):<15} {variable.letters:<12}"
    if not is_whole(values):
        some = " ".join(number(value).strip() for value in values.ravel()[:FEW])
        yield f"{head} {some} ..."
        return
    yield head.rstrip()
    yield from _rows(values, variable.letters.split(), names)


def is_whole(values: np.ndarray) -> bool:
    """Whether all of a tensor is shown."""
    return values.size <= WHOLE and values.shape[-1] <= WIDE


def mask_lines(mask: np.ndarray) -> Iterator[str]:
    """A mask [B or 1, 1, T or 1, S]: an x where may be looked, a point where not."""
    yield f"{'mask':<10} {_shape(mask):<15} x = may be looked at"
    for row, matrix in enumerate(mask[:, 0]):
        start = f"row {row}" if len(mask) > 1 else "all rows"
        for line in matrix:
            yield f"{'':<10} {start:<10} {' '.join('x' if allowed else '.' for allowed in line)}"
            start = ""


def number(value: float | int | np.generic) -> str:
    """A value in a cell."""
    kind = np.asarray(value).dtype.kind
    if kind == "b":
        return f"{'x' if value else '.':>{CELL}}"
    if kind in "iu":
        return f"{value:>{CELL}d}"
    size = abs(float(value))
    form = ".3f" if size < LARGE else ".0f" if size < HUGE else ".0e"
    return f"{value:>{CELL}{form}}"


def clip(piece: str, width: int = NAME) -> str:
    """A piece that fits a column."""
    return piece if len(piece) <= width else f"{piece[: width - 1]}…"


def _rows(values: np.ndarray, axes: list[str], names: Names) -> Iterator[str]:
    """The last axis as columns, every place of the others a line."""
    if axes[0] in FLAT:
        values = values.reshape(len(names["S"]), -1, values.shape[-1])
        axes = ["B", FLAT[axes[0]], *axes[1:]]
    batched = axes[0] == "B"
    for row, block in enumerate(values if batched else values[None]):
        start = f"row {row}" if batched else ""
        own = {axis: texts[row] for axis, texts in names.items()} if batched else {}
        for label, cells in _block(block, axes[batched:], own):
            yield f"    {start:<7}{label:<20}{cells}".rstrip()
            start = ""


def _block(
    values: np.ndarray, axes: list[str], names: dict[str, Sequence[str]]
) -> Iterator[tuple[str, str]]:
    """Label and cells of each line of a sentence's values: some columns after others."""
    width = values.shape[-1]
    for first in range(0, width, COLUMNS):
        columns = slice(first, first + COLUMNS)
        if axes[-1] in names:
            heads = names[axes[-1]][columns]
            yield "", "".join(f"{clip(text, CELL - 1):>{CELL}}" for text in heads)
        elif width > COLUMNS:
            yield f"columns {first} to {min(first + COLUMNS, width) - 1}", ""
        for place in product(*map(range, values.shape[:-1])):
            labels = (_label(axis, where, names) for axis, where in zip(axes, place, strict=False))
            yield " ".join(filter(None, labels)), "".join(map(number, values[place][columns]))


def _label(axis: str, where: int, names: dict[str, Sequence[str]]) -> str:
    """What a place on an axis is: `head 1`, `cat`."""
    if axis in names:
        return clip(names[axis][where])
    return f"{PLACES[axis]} {where}" if axis in PLACES else ""


def _shape(values: np.ndarray) -> str:
    return f"({', '.join(map(str, values.shape))})"


DEPTH = 3
"""A block's name: `decoder/layer_0/feed_forward`."""


@dataclass(frozen=True)
class Block:
    """The weights of a sublayer, or of a table."""

    name: str
    shapes: list[tuple[int, ...]]

    @property
    def count(self) -> int:
        """How many numbers they are."""
        return sum(map(math.prod, self.shapes))

    @property
    def formula(self) -> str:
        """How that comes about: `8*32 + 32 + 32*8 + 8`."""
        return " + ".join("*".join(map(str, shape)) for shape in self.shapes)


def list_blocks(transformer: Transformer) -> list[Block]:
    """All blocks; together they have all weights."""
    blocks: dict[str, Block] = {}
    for weight in transformer.weights:
        folders = weight.path.removeprefix(MODEL).split("/")[:-1]
        name = "/".join(folders[:DEPTH])
        blocks.setdefault(name, Block(name, [])).shapes.append(tuple(weight.shape))
    return list(blocks.values())
