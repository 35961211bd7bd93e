"""Maps each function of the model to its place in the paper and to the variables that show it.

The letters of the axes are those of tfnmt/tracing/steps.py, with one difference: T stands for the
queries and S for the keys. steps.py replaces both by the axes of the step at hand.
"""

from typing import Any, NamedTuple

RESULT = "result"
"""Stands for the return value of a function."""


class Entry(NamedTuple):
    """A function of the model, as the paper describes it."""

    title: str
    section: str  # of "Attention Is All You Need"
    formula: str
    axes: dict[str, str]  # variables to show, and the letters of their axes


ENTRIES = {
    "padding_mask": Entry(
        "padding mask",
        "section 3.2.3",
        "true at real tokens",
        {RESULT: "B 1 1 S"},
    ),
    "causal_mask": Entry(
        "causal mask",
        "section 3.2.3",
        "true where s <= t",
        {RESULT: "1 1 T T"},
    ),
    "Embedding.call": Entry(
        "token embedding",
        "section 3.4",
        "table[token] * sqrt(d_model)",
        {"tokens": "B T", RESULT: "B T D"},
    ),
    "sinusoids": Entry(
        "positional encoding",
        "section 3.5",
        "sin and cos of position / 10000^(2i / d_model)",
        {"positions": "pos", RESULT: "pos D"},
    ),
    "Dropout.call/source_dropout": Entry(
        "embedding plus positional encoding",
        "sections 3.4 and 3.5",
        "x",
        {"x": "B T D"},
    ),
    "Dropout.call/target_dropout": Entry(
        "embedding plus positional encoding",
        "sections 3.4 and 3.5",
        "x",
        {"x": "B T D"},
    ),
    "MultiHeadAttention.self_attention": Entry(
        "self-attention",
        "section 3.2.2",
        "queries, keys and values come from the same x",
        {"x": "B T D"},
    ),
    "MultiHeadAttention.call": Entry(
        "cross-attention",
        "section 3.2.2",
        "queries come from x, keys and values from the encoder output",
        {"x": "B T D"},
    ),
    "project_heads": Entry(
        "fused projection of all heads",
        "section 3.2.2",
        "x W + b, with W^Q, W^K and W^V of all heads concatenated",
        {"projected": "N P*D"},
    ),
    "Decoder.project_memory": Entry(
        "cross-attention keys and values of all layers",
        "section 3.2.3",
        "memory W + b, with W^K and W^V of all layers concatenated",
        {"memory": "B S D"},
    ),
    "MultiHeadAttention.attend": Entry(
        "queries, keys and values of the heads",
        "section 3.2.2",
        "Q, K, V",
        {"query": "B H T D/H", "keys": "B H S D/H", "values": "B H S D/H"},
    ),
    "attention_weights": Entry(
        "scaled dot-product attention",
        "section 3.2.1, equation 1",
        "softmax(Q K^T / sqrt(d_k))",
        {"scores": "B H T S", RESULT: "B H T S"},
    ),
    "merge_heads": Entry(
        "weighted values, heads concatenated",
        "section 3.2.2",
        "Concat(head_1, ..., head_h), head = weights V",
        {"x": "B H T D/H", RESULT: "B T D"},
    ),
    "Dense.call/query": Entry(
        "queries",
        "section 3.2.2",
        "x W^Q + b",
        {RESULT: "B T D"},
    ),
    "Dense.call/output": Entry(
        "output projection of the heads",
        "section 3.2.2",
        "Concat(...) W^O + b",
        {RESULT: "B T D"},
    ),
    "Residual.add": Entry(
        "residual connection",
        "sections 3.1 and 5.4",
        "total = x + f(x)",
        {"x": "B T D", "output": "B T D", "total": "B T D"},
    ),
    "LayerNorm.call": Entry(
        "layer normalization",
        "section 3.1",
        "(x - mean) / standard deviation * gamma + beta",
        {RESULT: "B T D"},
    ),
    "FeedForward.call": Entry(
        "feed-forward",
        "section 3.3, equation 2",
        "max(0, x W_1 + b_1) W_2 + b_2",
        {"x": "B T D"},
    ),
    "Dense.call/inner": Entry(
        "inner projection",
        "section 3.3, equation 2",
        "max(0, x W_1 + b_1)",
        {RESULT: "B T F"},
    ),
    "Dense.call/outer": Entry(
        "outer projection",
        "section 3.3, equation 2",
        "... W_2 + b_2",
        {RESULT: "B T D"},
    ),
    "Embedding.logits": Entry(
        "logits",
        "section 3.4",
        "hidden table^T",
        {"hidden": "B T D", RESULT: "B T V"},
    ),
    "OutputProjection.logits": Entry(
        "logits of the next token",
        "section 3.4",
        "hidden table^T; <pad> and <s> are excluded",
        {"hidden": "B K D", RESULT: "B K V"},
    ),
    "_extend_ancestry": Entry(
        "ancestry of the hypotheses",
        "none: part of beam search",
        "ancestry[parents], and one new token per hypothesis",
        {"parents": "B T", RESULT: "B T S"},
    ),
}
"""Entries by qualified name, plus `/` and the layer's name if one class has several purposes."""


def find_entry(function: str, owner: Any) -> Entry | None:
    """Return the entry of a function, or None if it has none.

    Args:
        function: The qualified name.
        owner: The layer whose method it is, or None.
    """
    named = ENTRIES.get(f"{function}/{getattr(owner, 'name', '')}")
    return named or ENTRIES.get(function)
