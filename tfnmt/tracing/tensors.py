"""Tensors as lines of text: small ones whole, large ones by their first values."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from tfnmt.model.transformer import Transformer
from tfnmt.tracing.steps import MODEL, Variable

MAX_VALUES, MAX_WIDTH = 192, 32
"""Limits of a tensor that is shown whole: its values, and those of a row. The tiny model's fit."""

COLUMNS = 8  # values per line
PREVIEW = 6  # values of a tensor that is not shown whole
NAME_WIDTH = 10  # characters of a column of names
CELL_WIDTH = 8  # characters of a value
LARGE, HUGE = 100, 1e6  # from these values on: no decimals, and scientific notation

INDEX_NAMES = {"H": "head", "K": "hypothesis", "N": "position", "T*K": "past"}
"""Name of an index, by the letters of its axis."""

FLATTENED = {"N": "N", "B*K": "K"}
"""Axes that hold all sentences one after another, and the axis of each single sentence."""

Names = dict[str, Sequence[Sequence[str]]]
"""Names of the indices of an axis for each sentence, by the letters of the axis."""


def tensor_lines(variable: Variable, names: Names) -> Iterator[str]:
    """Yield a line with name, shape and axes, and the values: below it if the tensor is small.

    Args:
        variable: The tensor.
        names: Names of the indices of some axes.
    """
    values = variable.values
    head = f"{variable.name:<10} {_shape(values):<15} {variable.letters:<12}"
    if not is_small(values):
        some = " ".join(format_number(value).strip() for value in values.ravel()[:PREVIEW])
        yield f"{head} {some} ..."
        return
    yield head.rstrip()
    yield from _rows(values, variable.letters.split(), names)


def is_small(values: np.ndarray) -> bool:
    """Return whether a tensor is shown whole."""
    return values.size <= MAX_VALUES and values.shape[-1] <= MAX_WIDTH


def mask_lines(mask: np.ndarray) -> Iterator[str]:
    """Yield the lines of a mask [B or 1, 1, T or 1, S]: x where it is True, a dot elsewhere."""
    yield f"{'mask':<10} {_shape(mask):<15} x = attended, . = masked"
    for row, matrix in enumerate(mask[:, 0]):
        start = f"row {row}" if len(mask) > 1 else "all rows"
        for line in matrix:
            yield f"{'':<10} {start:<10} {' '.join('x' if allowed else '.' for allowed in line)}"
            start = ""


def format_number(value: float | int | np.generic) -> str:
    """Format a value as a cell of CELL_WIDTH characters."""
    kind = np.asarray(value).dtype.kind
    if kind == "b":
        return f"{'x' if value else '.':>{CELL_WIDTH}}"
    if kind in "iu":
        return f"{value:>{CELL_WIDTH}d}"
    size = abs(float(value))
    form = ".3f" if size < LARGE else ".0f" if size < HUGE else ".0e"
    return f"{value:>{CELL_WIDTH}{form}}"


def shorten(token: str, width: int = NAME_WIDTH) -> str:
    """Truncate a token to a number of characters, with an ellipsis."""
    return token if len(token) <= width else f"{token[: width - 1]}…"


def _rows(values: np.ndarray, axes: list[str], names: Names) -> Iterator[str]:
    """Yield one line for each index of all axes except the last, whose values are the columns."""
    if axes[0] in FLATTENED:
        values = values.reshape(len(names["S"]), -1, values.shape[-1])
        axes = ["B", FLATTENED[axes[0]], *axes[1:]]
    batched = axes[0] == "B"
    for row, block in enumerate(values if batched else values[None]):
        start = f"row {row}" if batched else ""
        row_names = {axis: texts[row] for axis, texts in names.items()} if batched else {}
        for label, cells in _block(block, axes[batched:], row_names):
            yield f"    {start:<7}{label:<20}{cells}".rstrip()
            start = ""


def _block(
    values: np.ndarray, axes: list[str], names: dict[str, Sequence[str]]
) -> Iterator[tuple[str, str]]:
    """Yield label and cells of each line of one sentence's values, COLUMNS columns at a time."""
    width = values.shape[-1]
    for first in range(0, width, COLUMNS):
        columns = slice(first, first + COLUMNS)
        if axes[-1] in names:
            heads = names[axes[-1]][columns]
            yield "", "".join(f"{shorten(text, CELL_WIDTH - 1):>{CELL_WIDTH}}" for text in heads)
        elif width > COLUMNS:
            yield f"columns {first} to {min(first + COLUMNS, width) - 1}", ""
        for indices in product(*map(range, values.shape[:-1])):
            labels = (
                _label(axis, index, names) for axis, index in zip(axes, indices, strict=False)
            )
            cells = "".join(map(format_number, values[indices][columns]))
            yield " ".join(filter(None, labels)), cells


def _label(axis: str, index: int, names: dict[str, Sequence[str]]) -> str:
    """Return the name of an index: `head 1`, or its token."""
    if axis in names:
        return shorten(names[axis][index])
    return f"{INDEX_NAMES[axis]} {index}" if axis in INDEX_NAMES else ""


def _shape(values: np.ndarray) -> str:
    return f"({', '.join(map(str, values.shape))})"


# --- Parameters -----------------------------------------------------------------------------------

BLOCK_DEPTH = 3
"""Number of path components in the name of a block: `decoder/layer_0/feed_forward`."""


@dataclass(frozen=True)
class ParameterBlock:
    """The weights of a sublayer or of an embedding table."""

    name: str
    shapes: list[tuple[int, ...]]

    @property
    def count(self) -> int:
        """The number of parameters."""
        return sum(map(math.prod, self.shapes))

    @property
    def formula(self) -> str:
        """The number of parameters as a sum of products: `8*32 + 32 + 32*8 + 8`."""
        return " + ".join("*".join(map(str, shape)) for shape in self.shapes)


def list_parameter_blocks(transformer: Transformer) -> list[ParameterBlock]:
    """List the blocks of a model; each weight belongs to exactly one block."""
    blocks: dict[str, ParameterBlock] = {}
    for weight in transformer.weights:
        folders = weight.path.removeprefix(MODEL).split("/")[:-1]
        name = "/".join(folders[:BLOCK_DEPTH])
        blocks.setdefault(name, ParameterBlock(name, [])).shapes.append(tuple(weight.shape))
    return list(blocks.values())
