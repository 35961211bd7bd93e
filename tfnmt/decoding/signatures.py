"""The signatures of a model: what a run translates with, and what its export serves.

The table SIGNATURES is the only list of them. The export, its warm-up requests, its parity check
and the tests read it.
"""

from typing import NamedTuple

import tensorflow as tf

from tfnmt.decoding.inspector import TARGET, Inspector, token_log_probs
from tfnmt.decoding.lines import Signature, Signatures
from tfnmt.decoding.text import TOKENS
from tfnmt.decoding.translator import Translator
from tfnmt.model.layers import Tensor
from tfnmt.model.transformer import Transformer

TEXT_INPUTS = {"text", "translation"}
"""Inputs that take strings."""


class SignatureSpec(NamedTuple):
    """Inputs and outputs of a signature. Dimension 0 of each is the batch."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def takes_text(self) -> bool:
        """Return whether all inputs are strings, so that any text is a valid request."""
        return TEXT_INPUTS.issuperset(self.inputs)


_TRANSLATION = ("translation", "score", "truncated")
_PAIR = ("source_tokens", "target_tokens", "source_length", "target_length")
_ALIGNMENT = (*_PAIR, "attention", "token_log_probs")

SIGNATURES = {
    "serving_default": SignatureSpec(("text",), _TRANSLATION),
    "greedy": SignatureSpec(("text",), _TRANSLATION),
    "nbest": SignatureSpec(("text",), ("translations", "scores", "tokens", "truncated")),
    "align": SignatureSpec(("text", "translation"), _ALIGNMENT),
    "align_tokens": SignatureSpec(("tokens", "target"), _ALIGNMENT),
    "attention": SignatureSpec(("text", "translation"), (*_PAIR, "encoder", "decoder", "cross")),
    "tokenize": SignatureSpec(("text",), ("tokens", "truncated")),
    "search": SignatureSpec(("tokens",), ("tokens", "score")),
    "detokenize": SignatureSpec(("tokens",), ("translation",)),
    "info": SignatureSpec(("text",), ("card",)),
}
"""All signatures of an export, described for users in docs/reference/signatures.md. `info` returns
the model card, which only an export has."""

SOURCE_SIGNATURES = {
    name for name, spec in SIGNATURES.items() if "text" in spec.inputs and name != "info"
}
"""Signatures that encode sources. With language tokens, they also take `target` [B]."""


def signatures(translator: Translator) -> Signatures:
    """Return the graphs of a model by signature name, all of SIGNATURES except `info`."""
    inspector = Inspector(translator.transformer, translator.codec, translator.decoding)
    return {
        "serving_default": translator.translate,
        "greedy": translator.greedy,
        "nbest": translator.nbest,
        "align": inspector.align,
        "align_tokens": inspector.align_tokens,
        "attention": inspector.attention,
        "tokenize": translator.tokenize,
        "search": translator.search,
        "detokenize": translator.detokenize,
    }


def with_target(graphs: Signatures, target: str | None) -> Signatures:
    """Return the graphs of a model with their target language fixed.

    Args:
        graphs: The graphs by signature name, possibly those of an export.
        target: The language to translate to, for a model with language tokens, otherwise None.
    """
    if target is None:
        return graphs

    def bind(graph: Signature) -> Signature:
        def call(text: Tensor, **others: Tensor) -> dict[str, Tensor]:
            return graph(text=text, target=tf.fill(tf.shape(text), target), **others)

        return call

    return {
        name: bind(graph) if name in SOURCE_SIGNATURES else graph for name, graph in graphs.items()
    }


def scoring_graph(transformer: Transformer) -> Signature:
    """Return a graph that is `align_tokens` without attention, which takes memory."""

    def log_probs(tokens: Tensor, target: Tensor) -> dict[str, Tensor]:
        return {"token_log_probs": token_log_probs(transformer, tokens, target)}

    return tf.function(log_probs, input_signature=[TOKENS, TARGET], autograph=False)
