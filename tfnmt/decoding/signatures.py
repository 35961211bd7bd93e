"""The signatures of a model: what a run translates with, and what its export serves.

The table SIGNATURES is the only list of them. The export, its warm-up requests, its parity check
and the tests read it.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from tfnmt.decoding.lines import Signature, Signatures, to_strings

TARGET = "target"
"""The input with the language code that each text is translated to."""


class SignatureSpec(NamedTuple):
    """Inputs and outputs of a signature. Dimension 0 of each is the batch."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def takes_text(self) -> bool:
        """Return whether all inputs are strings, so that any text is a valid request."""
        return "tokens" not in self.inputs


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
"""Signatures that encode sources. With language tokens, they also take TARGET [B]."""


def signature_specs(targets: Sequence[str]) -> dict[str, SignatureSpec]:
    """Return the signatures of a model.

    Args:
        targets: The languages with a language token; none for a single direction.
    """
    if not targets:
        return SIGNATURES
    return {
        name: spec._replace(inputs=(*spec.inputs, TARGET)) if name in SOURCE_SIGNATURES else spec
        for name, spec in SIGNATURES.items()
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
        def call(text: Any, **others: Any) -> Any:
            return graph(text=text, target=to_strings([target] * len(text)), **others)

        return call

    return {
        name: bind(graph) if name in SOURCE_SIGNATURES else graph for name, graph in graphs.items()
    }
