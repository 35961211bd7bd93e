"""Well-known mistakes, each as what takes the place of one sound function.

The code stays as it is: a fault is put in from outside, in one process.
"""

import importlib
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tfnmt.model.layers import Tensor

Function = Callable[..., Any]


class Fault(NamedTuple):
    """A mistake: what it is, where it goes, and what takes that place."""

    says: str
    place: str  # module:function, or module:Class.function
    broken: Callable[[Function], Function]  # given the sound one
    tests: tuple[str, ...]  # of tests/tfnmt/: those nearest to the place
    trains: bool = True  # else it is a fault of the search


def plant(fault: Fault) -> None:
    """Puts the broken function where the sound one is, also where that was imported before."""
    module_name, path = fault.place.split(":")
    owner: Any = importlib.import_module(module_name)
    *classes, name = path.split(".")
    for each in classes:
        owner = getattr(owner, each)
    sound = getattr(owner, name)
    broken = fault.broken(sound)
    setattr(owner, name, broken)
    for module in [module for key, module in sys.modules.items() if key.startswith("tfnmt")]:
        for key, value in list(vars(module).items()):
            if value is sound:
                setattr(module, key, broken)


# --- Masks ----------------------------------------------------------------------------------------


def _all_true(sound: Function) -> Function:
    def mask(tokens_or_length: Tensor) -> Tensor:
        from keras import ops

        return ops.ones_like(sound(tokens_or_length))

    return mask


# --- What the decoder reads, and what it is to say ------------------------------------------------


def _no_shift(sound: Function) -> Function:
    """Reads the very piece that it is to predict."""

    def gather(*arguments: Any) -> Any:
        batch = sound(*arguments)
        return batch._replace(target_in=batch.target_out)

    return gather


def _no_bos(sound: Function) -> Function:
    """The target without its last piece, and without its first, of a target that has no bos."""

    def gather(*arguments: Any) -> Any:
        batch = sound(*arguments)
        target_in = np.pad(batch.target_in[:, 1:], [(0, 0), (0, 1)])
        target_out = np.pad(batch.target_out[:, 1:], [(0, 0), (0, 1)])
        return batch._replace(target_in=target_in, target_out=target_out)

    return gather


def _no_eos(sound: Function) -> Function:
    """Never learns to end."""

    def gather(*arguments: Any) -> Any:
        from tfnmt.data.preparation.tokenizer import EOS, PAD

        batch = sound(*arguments)
        target_out = np.where(batch.target_out == EOS, PAD, batch.target_out)
        return batch._replace(target_out=target_out)

    return gather


# --- Attention ------------------------------------------------------------------------------------


def _no_scale(sound: Function) -> Function:
    def attention_weights(query: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
        return sound(query * query.shape[-1] ** 0.5, keys, mask)

    return attention_weights


def _heads_not_transposed(sound: Function) -> Function:
    """[B, H, T, D/H] read as if it were [B, T, H, D/H]: positions and heads are mixed up."""

    def merge_heads(x: Tensor) -> Tensor:
        from keras import ops

        _, num_heads, _, depth = x.shape
        return ops.reshape(x, (-1, ops.shape(x)[2], num_heads * depth))

    return merge_heads


def _values_twice(sound: Function) -> Function:
    """What the encoder attends to is multiplied by the values at its own place again."""

    def init(self: Any, config: Any, **kwargs: Any) -> None:
        from tfnmt.model.attention import attention_weights, merge_heads, project_heads

        sound(self, config, **kwargs)
        layer = self.self_attention

        def look_around(x: Tensor, mask: Tensor, seed: Tensor | None = None) -> Tensor:
            query, keys, values = project_heads(x, layer.join(), layer.num_heads)
            attended = attention_weights(query, keys, mask) @ values  # [B, H, S, D/H]
            return layer.output_projection(merge_heads(attended * values))

        layer.look_around = look_around

    return init


def _no_last_norm(sound: Function) -> Function:
    """Ends like the paper's stacks, whose last sublayer is normed: here it is not."""

    def last_norm(config: Any) -> Any:
        return sound(config.model_copy(update={"norm_first": False}))

    return last_norm


# --- Embeddings and positions ---------------------------------------------------------------------


def _untied_init(sound: Function) -> Function:
    """Drawn from normal(0, 1), as suits a table that is no output projection too."""

    def build(self: Any, input_shape: Any = None) -> None:
        sound(self, input_shape)
        self.table.assign(self.table * self.d_model**0.5)

    return build


def _positions_2k(sound: Function) -> Function:
    """The exponent counts twice: 2k / d_model, where k runs over even numbers already."""

    def sinusoids(positions: Tensor, d_model: int) -> Tensor:
        from keras import ops

        rates = 10000.0 ** (-2 * np.arange(0, d_model, 2) / d_model)  # [D/2]
        angles = ops.cast(positions, "float32")[:, None] * ops.convert_to_tensor(rates, "float32")
        pairs = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)  # [T, D/2, 2]
        return ops.reshape(pairs, (-1, d_model))

    return sinusoids


# --- Training -------------------------------------------------------------------------------------


def _no_warmup(sound: Function) -> Function:
    """The highest rate from the first update on."""

    def rate(self: Any, updates: Tensor) -> Tensor:
        from keras import ops

        return sound(self, ops.maximum(ops.cast(updates, "float32"), self.warmup_steps - 1.0))

    return rate


# --- Search ---------------------------------------------------------------------------------------


def _penalty_each_step(sound: Function) -> Function:
    """Divides the sum of log probabilities again and again, so that early ones hardly count."""

    def candidates(logits: Tensor, live: Any, position: Tensor, search: Any) -> Any:
        from tfnmt.decoding.search import length_penalty

        found = sound(logits, live, position, search)
        penalty = length_penalty(position + 1, search.length_penalty)
        return found._replace(log_probs=found.log_probs / penalty)

    return candidates


def _ended_go_on(sound: Function) -> Function:
    """What has ended is entered into the list again in every step."""

    def keep_finished(candidates: Any, live: Any, state: Any, limits: Tensor, search: Any) -> Any:
        import tensorflow as tf

        once, again = sound(candidates, live, state, limits, search), state.finished
        scores = tf.concat([once.scores, again.scores], axis=1)  # [B, 2K]
        best, where = tf.math.top_k(scores, search.beam_size)
        tokens = tf.concat([once.tokens, again.tokens], axis=1)  # [B, 2K, T]
        return once._replace(tokens=tf.gather(tokens, where, batch_dims=1), scores=best)

    return keep_finished


MASKS = ("model/test_masks.py", "model/test_transformer.py")
ATTENTION = ("model/test_attention.py",)
BATCHES = ("data/test_batches.py",)
SEARCH = ("decoding/test_search.py",)

FAULTS = {
    "no_causal_mask": Fault(
        "each position of the target sees all of it",
        "tfnmt.model.attention:causal_mask", _all_true, MASKS,
    ),
    "no_padding_mask": Fault(
        "padding is attended to", "tfnmt.model.attention:padding_mask", _all_true, MASKS
    ),
    "no_shift": Fault(
        "the decoder reads the piece that it is to predict",
        "tfnmt.data.batching.batches:gather", _no_shift, BATCHES,
    ),
    "no_bos": Fault(
        "trained on targets without a beginning, so that the first piece is never predicted",
        "tfnmt.data.batching.batches:gather", _no_bos, BATCHES,
    ),
    "no_eos": Fault(
        "trained on targets without an end", "tfnmt.data.batching.batches:gather", _no_eos, BATCHES
    ),
    "no_scale": Fault(
        "scores are not divided by the root of d_k",
        "tfnmt.model.attention:attention_weights", _no_scale, ATTENTION,
    ),
    "heads_not_transposed": Fault(
        "heads are reshaped without being transposed back",
        "tfnmt.model.attention:merge_heads", _heads_not_transposed, ATTENTION,
    ),
    "values_twice": Fault(
        "what the encoder attends to is multiplied by V twice",
        "tfnmt.model.encoder:EncoderLayer.__init__", _values_twice, ("model/test_transformer.py",),
    ),
    "no_last_norm": Fault(
        "layers norm first, and nothing norms what the last one gives",
        "tfnmt.model.sublayers:last_norm", _no_last_norm, ("model/test_numpy.py",),
    ),
    "untied_init": Fault(
        "the shared table is drawn from normal(0, 1)",
        "tfnmt.model.embedding:Embedding.build", _untied_init, ("model/test_embedding.py",),
    ),
    "positions_2k": Fault(
        "positions with the exponent 2k/d_model for k = 0, 2, 4 ...",
        "tfnmt.model.embedding:sinusoids", _positions_2k, ("model/test_positions.py",),
    ),
    "no_warmup": Fault(
        "the highest learning rate from the first update on",
        "tfnmt.training.schedule:NoamSchedule.__call__", _no_warmup, ("training/test_schedule.py",),
    ),
    "penalty_each_step": Fault(
        "the length penalty divides the log probabilities at each step",
        "tfnmt.decoding.search:_candidates", _penalty_each_step, SEARCH, trains=False,
    ),
    "ended_go_on": Fault(
        "finished hypotheses are entered again in every step, and fill the list up with duplicates",
        "tfnmt.decoding.search:_keep_finished", _ended_go_on, SEARCH, trains=False,
    ),
}  # fmt: skip
