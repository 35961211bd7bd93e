"""The graph `inspect`: force-decoding that also returns the tensors in between.

The recorder takes them from the forward pass itself, while its graph is traced. So the graph shows
what the layers compute, and has no second copy of any computation.

Letters: B sentences, S source length, T target length, L layers, H heads, D d_model, V' tokens of
the padded vocabulary.
"""

from typing import Any

import tensorflow as tf

import tfnmt.model
from tfnmt.decoding.inspector import shift_right
from tfnmt.decoding.searcher import Projection
from tfnmt.model.embedding import sinusoids
from tfnmt.model.layers import Tensor
from tfnmt.model.transformer import Transformer
from tfnmt.runtime.recorder import Call, recording


def inspect(
    transformer: Transformer, output: Projection, source: Tensor, target: Tensor
) -> dict[str, Tensor]:
    """Force-decode a translation and return what the model computes on the way.

    Args:
        transformer: The model.
        output: Its output projection.
        source: [B, S] ids with EOS.
        target: [B, T] ids with EOS, without BOS.

    Returns:
        Tensors by name. The residual stream has one norm per position before the first sublayer,
        one after each sublayer, and one of the stack's output.

            source_embeddings [B, S, D], target_embeddings [B, T, D]: scaled, without positions
            source_positions [1, S, D], target_positions [1, T, D]: the positional encoding
            encoder [B, L, H, S, S], decoder [B, L, H, T, T], cross [B, L, H, T, S]: attention
            encoder_norms [B, 2 L + 2, S], decoder_norms [B, 3 L + 2, T]: the residual stream
            encoder_updates [B, 2 L, S], decoder_updates [B, 3 L, T]: norms of sublayer outputs
            log_probs [B, T, V']: of each token at each step
    """
    target_in = shift_right(target)
    with recording(tfnmt.model) as root:
        hidden = transformer.decode(target_in, *transformer.encode(source))
    (encode,), (decode,) = (root.find(f"Transformer.{name}") for name in ("encode", "decode"))
    attention = _attention_weights(decode)
    return {
        **_embeddings(transformer, source, "source"),
        **_embeddings(transformer, target_in, "target"),
        "encoder": tf.stack(_attention_weights(encode), axis=1),
        "decoder": tf.stack(attention[::2], axis=1),
        "cross": tf.stack(attention[1::2], axis=1),
        **_residual_stream(encode, encode.result[0], "encoder"),
        **_residual_stream(decode, hidden, "decoder"),
        "log_probs": tf.nn.log_softmax(output.logits(hidden)),
    }


def _embeddings(transformer: Transformer, tokens: Tensor, side: str) -> dict[str, Tensor]:
    positions = sinusoids(tf.range(tf.shape(tokens)[1]), transformer.d_model)
    embedding = getattr(transformer, f"{side}_embedding")
    return {f"{side}_embeddings": embedding(tokens), f"{side}_positions": positions[None]}


def _attention_weights(stack: Call) -> list[Tensor]:
    """Return the attention weights of a stack of layers, in the order of their computation."""
    return [call.result for call in stack.find("attention_weights")]


def _residual_stream(stack: Call, result: Tensor, name: str) -> dict[str, Tensor]:
    sublayers = list(stack.find("Residual.add"))
    states = [sublayers[0].arguments["x"], *(call.result for call in sublayers), result]
    outputs = [call.arguments["output"] for call in sublayers]
    return {f"{name}_norms": _norms(states), f"{name}_updates": _norms(outputs)}


def _norms(states: list[Any]) -> Tensor:
    """Return the Euclidean norm of each position of n tensors [B, T, D], as [B, n, T]."""
    return tf.stack([tf.sqrt(tf.reduce_sum(tf.square(x), axis=-1)) for x in states], axis=1)
