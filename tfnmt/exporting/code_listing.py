"""The code that the explorer shows: the source of functions of this version of tfnmt."""

import ast
from pathlib import Path
from typing import TypedDict

PACKAGE = Path(__file__).parents[1]

FUNCTIONS = {
    "data/preparation/tokenizer.py": ["Tokenizer.encode"],
    "decoding/inspector.py": ["shift_right"],
    "decoding/search.py": ["beam_search", "length_penalty", "_can_improve"],
    "decoding/searcher.py": ["OutputProjection.logits"],
    "model/attention.py": [
        "padding_mask",
        "causal_mask",
        "attention_weights",
        "MultiHeadAttention.call",
    ],
    "model/cache.py": ["CacheLayout.write"],
    "model/decoder.py": [
        "Decoder.project_memory",
        "Decoder.step",
        "DecoderLayer.call",
        "DecoderLayer.step",
    ],
    "model/embedding.py": ["Embedding.call", "Embedding.logits", "sinusoids"],
    "model/encoder.py": ["EncoderLayer.call"],
    "model/layers.py": ["LayerNorm.call"],
    "model/sublayers.py": ["FeedForward.call", "Residual.add"],
    "model/transformer.py": ["Transformer._embed", "Transformer.call_with_attention"],
    "tracing/forward.py": ["compute_losses"],
}
"""The qualified names of the functions by file."""


class Listing(TypedDict):
    """A function."""

    file: str  # relative to the root of the project
    line: int
    code: str


def code_listing() -> dict[str, Listing]:
    """Return the functions by qualified name."""
    return {
        name: _listing(file, name, (PACKAGE / file).read_text(encoding="utf-8"))
        for file, names in FUNCTIONS.items()
        for name in names
    }


def _listing(file: str, name: str, source: str) -> Listing:
    node: ast.AST = ast.parse(source)
    for part in name.split("."):
        node = next(
            child
            for child in ast.iter_child_nodes(node)
            if isinstance(child, ast.FunctionDef | ast.ClassDef) and child.name == part
        )
    assert isinstance(node, ast.FunctionDef)
    lines = source.splitlines()[node.lineno - 1 : node.end_lineno]
    indent = " " * node.col_offset
    code = "\n".join(line.removeprefix(indent) for line in lines)
    return {"file": f"tfnmt/{file}", "line": node.lineno, "code": code}
