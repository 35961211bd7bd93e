"""The weights of a model, block by block."""

import math
from dataclasses import dataclass

from tfnmt.model.transformer import Transformer
from tfnmt.tracing.steps import MODEL

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
