"""Force-decoding: token log probabilities and attention for a given translation.

Letters: B sentences, S source, T target, L layers, H heads, V' tokens of the padded vocabulary. Ids
are int32 and 0 is padding.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfnmt.config import DecodingConfig
from tfnmt.data.preparation.tokenizer import BOS, PAD
from tfnmt.decoding.lines import Signature
from tfnmt.decoding.searcher import output_projection
from tfnmt.decoding.text import TEXT, TOKENS, TextCodec, checked_rows
from tfnmt.model.layers import Tensor
from tfnmt.model.transformer import AttentionWeights, Transformer

MAX_ATTENTION_TOKENS = 64
"""Tokens of a text whose attention is returned, EOS included. Attention takes L * H * 64 * 64."""

TARGET = tf.TensorSpec([None, None], tf.int32, name="target")
TRANSLATION = tf.TensorSpec([None], tf.string, name="translation")

SAME_ROWS = "text and translation must have the same number of rows"
"""The error for different rows. Without a check, a single row would be broadcast."""


def token_log_probs(transformer: Transformer, source: Tensor, target: Tensor) -> Tensor:
    """Return the log probability of each target token, [B, T], 0 at padding.

    For a hypothesis, the sum over its tokens is the log probability that the search gave it.

    Args:
        transformer: The model.
        source: [B, S] ids with EOS.
        target: [B, T] ids with EOS, without BOS.
    """
    memory, memory_mask = transformer.encode(source)
    hidden = transformer.decode(shift_right(target), memory, memory_mask)
    return _log_probs(transformer, hidden, target)


def shift_right(target: Tensor) -> Tensor:
    """Turn target_out (tokens, EOS) into target_in (BOS, tokens), [B, T].

    In a shorter row, EOS stays in front of the padding. No real position attends to it.
    """
    begin = tf.fill([tf.shape(target)[0], 1], BOS)
    return tf.concat([begin, target[:, :-1]], axis=1)


def _log_probs(transformer: Transformer, hidden: Tensor, target: Tensor) -> Tensor:
    logits = output_projection(transformer).logits(hidden)  # [B, T, V']
    log_probs = tf.gather(tf.nn.log_softmax(logits), target, batch_dims=2)  # [B, T]
    return tf.where(target == PAD, 0.0, log_probs)


def scoring_graph(transformer: Transformer) -> Signature:
    """Return a graph that is `align_tokens` without attention, which takes memory."""

    def log_probs(tokens: Tensor, target: Tensor) -> dict[str, Tensor]:
        return {"token_log_probs": token_log_probs(transformer, tokens, target)}

    return tf.function(log_probs, input_signature=[TOKENS, TARGET], autograph=False)


class AttentionMaps(NamedTuple):
    """The attention weights of every layer and head for one sentence and its translation."""

    source: list[str]  # S tokens
    target: list[str]  # T tokens
    encoder: np.ndarray  # [L, H, S, S]
    decoder: np.ndarray  # [L, H, T, T]
    cross: np.ndarray  # [L, H, T, S]


class Inspector:
    """Force-decodes translations in one graph, for any number and length of sentences.

    `align` and `attention` take text [B] and translation [B], `align_tokens` the ids of both,
    [B, S] and [B, T]. With language tokens, the first two also take `target` [B], the language of
    the translation. All return `source_tokens` [B, S] and `target_tokens` [B, T], EOS included
    and padded with '', and their lengths `source_length` and `target_length`, [B].
    """

    def __init__(
        self, transformer: Transformer, codec: TextCodec, decoding: DecodingConfig
    ) -> None:
        self.transformer = transformer
        self.codec = codec
        self.max_source = decoding.max_source_length
        self.max_target = max(decoding.max_translation_length, decoding.max_source_length)
        texts = [TEXT, TRANSLATION]
        # Called by `align` and `attention`, but traced and saved only once.
        self.force_decode = tf.function(
            self._force_decode, input_signature=[TOKENS, TARGET], autograph=False
        )
        self.align = codec.graph(self._align, texts)
        self.align_tokens = tf.function(
            self._align_tokens, input_signature=[TOKENS, TARGET], autograph=False
        )
        self.attention = codec.graph(self._attention, texts)

    def attention_maps(
        self, text: str, translation: str, target: str | None = None
    ) -> AttentionMaps:
        """Return the attention for one pair, each side truncated to MAX_ATTENTION_TOKENS.

        Args:
            text: The source.
            translation: Its translation.
            target: The language of the translation, for a model with language tokens.
        """
        languages = [] if target is None else [[target]]
        outputs = self.attention([text], [translation], *languages)
        first = {name: row.numpy()[0] for name, row in outputs.items()}
        source_tokens, target_tokens = (
            [token.decode() for token in first[f"{side}_tokens"]] for side in ("source", "target")
        )
        return AttentionMaps(
            source_tokens, target_tokens, *(first[kind] for kind in AttentionWeights._fields)
        )

    def _align(
        self, text: Tensor, translation: Tensor, target: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Return the outputs of `align_tokens` for texts."""
        source = self.codec.truncate(text, self.max_source, target).tokens
        return self.align_tokens(source, self.codec.truncate(translation, self.max_target).tokens)

    def _align_tokens(self, tokens: Tensor, target: Tensor) -> dict[str, Tensor]:
        """Add attention [B, T, S], the head average of the last layer, and token_log_probs."""
        target = checked_rows(target, tokens, SAME_ROWS)
        decoded = self.force_decode(tokens, target)
        return {
            **self._token_strings(tokens, target),
            "attention": tf.reduce_mean(decoded["cross"][:, -1], axis=1),  # [B, T, S]
            "token_log_probs": decoded["token_log_probs"],
        }

    def _attention(
        self, text: Tensor, translation: Tensor, target: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Add encoder [B, L, H, S, S], decoder [B, L, H, T, T] and cross [B, L, H, T, S]."""
        translation = checked_rows(translation, text, SAME_ROWS)
        limits = [min(each, MAX_ATTENTION_TOKENS) for each in (self.max_source, self.max_target)]
        source = self.codec.truncate(text, limits[0], target).tokens
        forced = self.codec.truncate(translation, limits[1]).tokens
        decoded = self.force_decode(source, forced)
        kinds = {name: decoded[name] for name in AttentionWeights._fields}
        return {**self._token_strings(source, forced), **kinds}

    def _force_decode(self, source: Tensor, target: Tensor) -> dict[str, Tensor]:
        """Return all attention weights and log probabilities for ids [B, S] and [B, T]."""
        hidden, attention = self.transformer.call_with_attention(source, shift_right(target))
        log_probs = _log_probs(self.transformer, hidden, target)
        return {**attention._asdict(), "token_log_probs": log_probs}

    def _token_strings(self, source: Tensor, target: Tensor) -> dict[str, Tensor]:
        return {
            "source_tokens": self.codec.names(source),
            "target_tokens": self.codec.names(target),
            "source_length": tf.math.count_nonzero(source, axis=1, dtype=tf.int32),
            "target_length": tf.math.count_nonzero(target, axis=1, dtype=tf.int32),
        }
