"""What each function of the model is in the paper, and which of its variables show it.

The letters of axes are those of tfnmt/tracing/steps.py, but that T stands for whatever asks, and S
for whatever is asked: which these are in a step is found out there.
"""

from typing import Any, NamedTuple

RESULT = "result"
"""The name of what a function returns."""


class Entry(NamedTuple):
    """A function of the model."""

    title: str
    section: str  # of "Attention Is All You Need"
    formula: str
    shows: dict[str, str]  # its variables and the letters of their axes


ENTRIES = {
    "padding_mask": Entry(
        "which positions are real", "section 3.2.3", "true where there is a piece",
        {RESULT: "B 1 1 S"},
    ),
    "causal_mask": Entry(
        "no position sees a later one", "section 3.2.3", "true where s <= t", {RESULT: "1 1 T T"}
    ),
    "Embedding.call": Entry(
        "token embedding", "section 3.4", "table[token] * sqrt(d_model)",
        {"tokens": "B T", RESULT: "B T D"},
    ),
    "sinusoids": Entry(
        "positional encoding", "section 3.5",
        "sin and cos of position / 10000^(2i / d_model)", {"positions": "pos", RESULT: "pos D"},
    ),
    "Dropout.call/source_dropout": Entry(
        "embedding and position, added", "sections 3.4 and 3.5", "x", {"x": "B T D"}
    ),
    "Dropout.call/target_dropout": Entry(
        "embedding and position, added", "sections 3.4 and 3.5", "x", {"x": "B T D"}
    ),
    "MultiHeadAttention.look_around": Entry(
        "self-attention", "section 3.2.2", "query, keys and values come from the same x",
        {"x": "B T D"},
    ),
    "MultiHeadAttention.call": Entry(
        "attention to the memory", "section 3.2.2",
        "the query comes from x, keys and values from the encoder", {"x": "B T D"},
    ),
    "project_heads": Entry(
        "projections of all heads, as one product", "section 3.2.2",
        "x W + b, for W^Q, W^K and W^V of every head side by side",
        {"projected": "N P*D"},
    ),
    "Decoder.project": Entry(
        "keys and values of the memory, for all layers", "section 3.2.3",
        "memory W + b, for W^K and W^V of every layer", {"memory": "B S D"},
    ),
    "MultiHeadAttention.attend": Entry(
        "query, keys and values of the heads", "section 3.2.2", "Q, K, V",
        {"query": "B H T D/H", "keys": "B H S D/H", "values": "B H S D/H"},
    ),
    "attention_weights": Entry(
        "scaled dot-product attention", "section 3.2.1, equation 1", "softmax(Q K^T / sqrt(d_k))",
        {"scores": "B H T S", RESULT: "B H T S"},
    ),
    "merge_heads": Entry(
        "heads, weighted and put side by side", "section 3.2.2",
        "Concat(head_1, ..., head_h), head = weights V", {"x": "B H T D/H", RESULT: "B T D"},
    ),
    "Dense.call/query": Entry("queries", "section 3.2.2", "x W^Q + b", {RESULT: "B T D"}),
    "Dense.call/output": Entry(
        "what the heads found, mixed", "section 3.2.2", "Concat(...) W^O + b", {RESULT: "B T D"}
    ),
    "Residual.leave": Entry(
        "residual connection", "sections 3.1 and 5.4", "total = x + f(x)",
        {"x": "B T D", "output": "B T D", "total": "B T D"},
    ),
    "LayerNorm.call": Entry(
        "layer norm", "section 3.1", "(x - mean) / deviation * gamma + beta", {RESULT: "B T D"}
    ),
    "FeedForward.call": Entry(
        "feed-forward", "section 3.3, equation 2", "max(0, x W_1 + b_1) W_2 + b_2", {"x": "B T D"}
    ),
    "Dense.call/inner": Entry(
        "inner projection", "section 3.3, equation 2", "max(0, x W_1 + b_1)", {RESULT: "B T F"}
    ),
    "Dense.call/outer": Entry(
        "outer projection", "section 3.3, equation 2", "... W_2 + b_2", {RESULT: "B T D"}
    ),
    "Embedding.logits": Entry(
        "logits", "section 3.4", "hidden table^T", {"hidden": "B T D", RESULT: "B T V"}
    ),
    "OutputProjection.logits": Entry(
        "logits of what may come next", "section 3.4",
        "hidden table^T; never <pad> or <s>", {"hidden": "B K D", RESULT: "B K V"},
    ),
    "_inherit": Entry(
        "whose past is whose", "none: a search's own",
        "own[parents], and a new token each", {"parents": "B T", RESULT: "B T S"},
    ),
}  # fmt: skip
"""By qualified name; by the layer's name too, where one class stands for several things."""


def find_entry(function: str, owner: Any) -> Entry | None:
    """What a method of that owner is in the paper; None where it is nothing of its own."""
    named = ENTRIES.get(f"{function}/{getattr(owner, 'name', '')}")
    return named or ENTRIES.get(function)
