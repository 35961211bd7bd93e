"""The step function of a model, for a search to go by."""

from typing import Any

from tfnmt.decoding.output import OutputProjection
from tfnmt.decoding.search import Cache, Step
from tfnmt.model.cache import GROWING, Room
from tfnmt.model.transformer import Transformer

Tensor = Any


def start(
    transformer: Transformer,
    output: OutputProjection,
    source: Tensor,
    beams: int,
    room: Room = GROWING,
) -> tuple[Step, Cache]:
    """Reads sources [B, S]; how K = `beams` hypotheses of each go on, and what they begin with."""
    cache, fixed = transformer.start_search(source, beams, room)

    def step(
        tokens: Tensor, parents: Tensor, position: Tensor, cache: Cache
    ) -> tuple[Tensor, Cache]:
        hidden, cache = transformer.decode_step(tokens, parents, position, cache, fixed)
        return output.logits(hidden), cache

    return step, cache
