"""The step function of a model, for a search to go by."""

from typing import Any

from tfnmt.decoding.output import output_projection
from tfnmt.decoding.search import Cache, Step
from tfnmt.model.transformer import Transformer

Tensor = Any


def start(transformer: Transformer, source: Tensor, beams: int) -> tuple[Step, Cache]:
    """Reads sources [B, S]; how K = `beams` hypotheses of each go on, and what they begin with."""
    cache, fixed = transformer.start_search(source, beams)
    output = output_projection(transformer)

    def step(
        tokens: Tensor, parents: Tensor, position: Tensor, cache: Cache
    ) -> tuple[Tensor, Cache]:
        hidden, cache = transformer.decode_step(tokens, parents, position, cache, fixed)
        return output.logits(hidden), cache

    return step, cache
