"""Well-known Transformer bugs, each as a replacement for one function of tfnmt.

The source code stays unchanged: `inject` replaces the function in the running process only.
"""

import importlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from tfnmt.model.layers import Tensor

Function = Callable[..., Any]


class Mutation(NamedTuple):
    """An injected bug: its description, the function it replaces and the replacement."""

    description: str
    target: str  # module:function, or module:Class.function
    mutate: Callable[[Function], Function]  # original function -> function with the bug
    tests: tuple[str, ...]  # test files in tests/tfnmt/ closest to the target
    needs_training: bool = True  # False: a decoding bug, measured on the reference run


def inject(mutation: Mutation) -> None:
    """Replace the target of a mutation, including in modules that imported it earlier."""
    module_name, path = mutation.target.split(":")
    owner: Any = importlib.import_module(module_name)
    *classes, name = path.split(".")
    for each in classes:
        owner = getattr(owner, each)
    original = getattr(owner, name)
    mutated = mutation.mutate(original)
    setattr(owner, name, mutated)
    for module in [module for key, module in sys.modules.items() if key.startswith("tfnmt")]:
        for key, value in list(vars(module).items()):
            if value is original:
                setattr(module, key, mutated)


# --- Masks ----------------------------------------------------------------------------------------


def _all_true(original: Function) -> Function:
    def mask(tokens_or_length: "Tensor") -> "Tensor":
        from keras import ops

        return ops.ones_like(original(tokens_or_length))

    return mask


# --- Decoder input and target ---------------------------------------------------------------------


def _no_shift(original: Function) -> Function:
    """Feed the decoder the token that it has to predict."""

    def gather(*arguments: Any) -> Any:
        batch = original(*arguments)
        return batch._replace(target_in=batch.target_out)

    return gather


def _no_bos(original: Function) -> Function:
    """Leave out BOS, so that target_in starts with token 1 and target_out with token 2."""

    def gather(*arguments: Any) -> Any:
        batch = original(*arguments)
        target_in = np.pad(batch.target_in[:, 1:], [(0, 0), (0, 1)])
        target_out = np.pad(batch.target_out[:, 1:], [(0, 0), (0, 1)])
        return batch._replace(target_in=target_in, target_out=target_out)

    return gather


def _no_eos(original: Function) -> Function:
    """Leave out EOS, so that the model never learns to end a sentence."""

    def gather(*arguments: Any) -> Any:
        from tfnmt.data.preparation.tokenizer import EOS, PAD

        batch = original(*arguments)
        target_out = np.where(batch.target_out == EOS, PAD, batch.target_out)
        return batch._replace(target_out=target_out)

    return gather


# --- Attention ------------------------------------------------------------------------------------


def _no_scale(original: Function) -> Function:
    def attention_weights(query: "Tensor", keys: "Tensor", mask: "Tensor") -> "Tensor":
        return original(query * query.shape[-1] ** 0.5, keys, mask)

    return attention_weights


def _heads_not_transposed(original: Function) -> Function:
    """Reshape [B, H, T, D/H] as if it were [B, T, H, D/H], which mixes positions and heads."""

    def merge_heads(x: "Tensor") -> "Tensor":
        from keras import ops

        _, num_heads, _, depth = x.shape
        return ops.reshape(x, (-1, ops.shape(x)[2], num_heads * depth))

    return merge_heads


def _values_twice(original: Function) -> Function:
    """Multiply the output of encoder self-attention by the values of the same position again."""

    def init(self: Any, config: Any, **kwargs: Any) -> None:
        from tfnmt.model.attention import attention_weights, merge_heads, project_heads

        original(self, config, **kwargs)
        layer = self.self_attention

        def self_attention(x: "Tensor", mask: "Tensor", seed: "Tensor | None" = None) -> "Tensor":
            query, keys, values = project_heads(x, layer.fused_qkv(), layer.num_heads)
            attended = attention_weights(query, keys, mask) @ values  # [B, H, S, D/H]
            return layer.output_projection(merge_heads(attended * values))

        layer.self_attention = self_attention

    return init


def _no_last_norm(original: Function) -> Function:
    """Leave out the final norm of pre-norm stacks, as in post-norm stacks, which need none."""

    def make_final_norm(config: Any) -> Any:
        return original(config.model_copy(update={"norm_first": False}))

    return make_final_norm


# --- Embeddings and positions ---------------------------------------------------------------------


def _untied_init(original: Function) -> Function:
    """Initialize from normal(0, 1), which suits only a table that is no output projection."""

    def build(self: Any, input_shape: Any = None) -> None:
        original(self, input_shape)
        self.table.assign(self.table * self.d_model**0.5)

    return build


def _positions_2k(original: Function) -> Function:
    """Double the exponent: 2k / d_model, although k already runs over even numbers only."""

    def sinusoids(positions: "Tensor", d_model: int) -> "Tensor":
        from keras import ops

        frequencies = 10000.0 ** (-2 * np.arange(0, d_model, 2) / d_model)  # [D/2]
        frequencies = ops.convert_to_tensor(frequencies, "float32")
        angles = ops.cast(positions, "float32")[:, None] * frequencies
        pairs = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)  # [T, D/2, 2]
        return ops.reshape(pairs, (-1, d_model))

    return sinusoids


# --- Training -------------------------------------------------------------------------------------


def _no_warmup(original: Function) -> Function:
    """Start with the peak learning rate."""

    def learning_rate(self: Any, step: "Tensor") -> "Tensor":
        from keras import ops

        return original(self, ops.maximum(ops.cast(step, "float32"), self.warmup_steps - 1.0))

    return learning_rate


# --- Search ---------------------------------------------------------------------------------------


def _penalty_each_step(original: Function) -> Function:
    """Divide the accumulated log probability at each step, so that early tokens hardly count."""

    def candidates(logits: "Tensor", live: Any, position: "Tensor", parameters: Any) -> Any:
        from tfnmt.decoding.search import length_penalty

        found = original(logits, live, position, parameters)
        penalty = length_penalty(position + 1, parameters.length_penalty)
        return found._replace(log_probs=found.log_probs / penalty)

    return candidates


def _duplicate_finished(original: Function) -> Function:
    """Add the finished hypotheses to their own list again in each step."""

    def keep_finished(
        candidates: Any, live: Any, state: Any, limits: "Tensor", parameters: Any
    ) -> Any:
        import tensorflow as tf

        kept = original(candidates, live, state, limits, parameters)
        duplicates = state.finished
        scores = tf.concat([kept.scores, duplicates.scores], axis=1)  # [B, 2K]
        best, where = tf.math.top_k(scores, parameters.beam_size)
        tokens = tf.concat([kept.tokens, duplicates.tokens], axis=1)  # [B, 2K, T]
        return kept._replace(tokens=tf.gather(tokens, where, batch_dims=1), scores=best)

    return keep_finished


MASKS = ("model/test_attention.py", "model/test_transformer.py")
ATTENTION = ("model/test_attention.py",)
BATCHES = ("data/batching/test_batches.py",)
EMBEDDING = ("model/test_embedding.py",)
SEARCH = ("decoding/test_search.py",)

MUTATIONS = {
    "no_causal_mask": Mutation(
        "each target position attends to the whole target",
        "tfnmt.model.attention:causal_mask",
        _all_true,
        MASKS,
    ),
    "no_padding_mask": Mutation(
        "padding is attended to",
        "tfnmt.model.attention:padding_mask",
        _all_true,
        MASKS,
    ),
    "no_shift": Mutation(
        "the decoder reads the token that it has to predict",
        "tfnmt.data.batching.batches:gather",
        _no_shift,
        BATCHES,
    ),
    "no_bos": Mutation(
        "trained on targets without BOS, so that the first token is never predicted",
        "tfnmt.data.batching.batches:gather",
        _no_bos,
        BATCHES,
    ),
    "no_eos": Mutation(
        "trained on targets without EOS",
        "tfnmt.data.batching.batches:gather",
        _no_eos,
        BATCHES,
    ),
    "no_scale": Mutation(
        "attention scores are not divided by sqrt(d_k)",
        "tfnmt.model.attention:attention_weights",
        _no_scale,
        ATTENTION,
    ),
    "heads_not_transposed": Mutation(
        "heads are merged without a transpose before the reshape",
        "tfnmt.model.attention:merge_heads",
        _heads_not_transposed,
        ATTENTION,
    ),
    "values_twice": Mutation(
        "encoder self-attention multiplies by V twice",
        "tfnmt.model.encoder:EncoderLayer.__init__",
        _values_twice,
        ("model/test_transformer.py",),
    ),
    "no_last_norm": Mutation(
        "pre-norm layers without a norm after the last layer",
        "tfnmt.model.sublayers:make_final_norm",
        _no_last_norm,
        ("model/test_numpy.py",),
    ),
    "untied_init": Mutation(
        "the shared embedding table is initialized from normal(0, 1)",
        "tfnmt.model.embedding:Embedding.build",
        _untied_init,
        EMBEDDING,
    ),
    "positions_2k": Mutation(
        "positional encoding with exponent 2k/d_model for k = 0, 2, 4 ...",
        "tfnmt.model.embedding:sinusoids",
        _positions_2k,
        EMBEDDING,
    ),
    "no_warmup": Mutation(
        "the peak learning rate from the first step",
        "tfnmt.training.schedule:NoamSchedule.__call__",
        _no_warmup,
        ("training/test_schedule.py",),
    ),
    "penalty_each_step": Mutation(
        "the length penalty divides the log probabilities at each step",
        "tfnmt.decoding.search:_candidates",
        _penalty_each_step,
        SEARCH,
        needs_training=False,
    ),
    "duplicate_finished": Mutation(
        "each step adds the finished hypotheses again, so that the list fills with duplicates",
        "tfnmt.decoding.search:_keep_finished",
        _duplicate_finished,
        SEARCH,
        needs_training=False,
    ),
}
