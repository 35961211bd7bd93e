"""The Inspector: what the model makes of a text and a translation of it."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfnmt.config import DecodingConfig
from tfnmt.data.preparation.tokenizer import BOS, PAD
from tfnmt.decoding.searcher import output_projection
from tfnmt.decoding.text import TEXT, TOKENS, TextCodec
from tfnmt.model.layers import Tensor
from tfnmt.model.transformer import Attention, Transformer

SHOWN_PIECES = 64
"""Pieces of a text whose attention is given, eos counted: L x H matrices of their square."""

TARGET = tf.TensorSpec([None, None], tf.int32, name="target")
TRANSLATION = tf.TensorSpec([None], tf.string, name="translation")


class Look(NamedTuple):
    """What every layer and head attends to in one text and one translation of it."""

    source: list[str]  # S pieces
    target: list[str]  # T pieces
    encoder: np.ndarray  # [L, H, S, S]
    decoder: np.ndarray  # [L, H, T, T]
    cross: np.ndarray  # [L, H, T, S]


class Inspector:
    """Reads translations with their sources, in one graph, whatever their number and length.

    Both functions take text [B] and translation [B] and give the pieces of either, [B, S] and
    [B, T], eos included and padded with '', and their numbers, [B].
    """

    def __init__(
        self, transformer: Transformer, codec: TextCodec, decoding: DecodingConfig
    ) -> None:
        self.transformer = transformer
        self.codec = codec
        self.max_source = decoding.max_source_length
        self.max_target = max(decoding.longest, decoding.max_source_length)
        texts = [TEXT, TRANSLATION]
        # Both call it: it is traced and saved but once.
        self.read = tf.function(self._read, input_signature=[TOKENS, TARGET], autograph=False)
        self.align = tf.function(self._align, input_signature=texts, autograph=False)
        self.attention = tf.function(self._attention, input_signature=texts, autograph=False)

    def look(self, text: str, translation: str) -> Look:
        """A single text and its translation, for pictures; each is cut at SHOWN_PIECES."""
        seen = {name: row.numpy()[0] for name, row in self.attention([text], [translation]).items()}
        source, target = (
            [piece.decode() for piece in seen[f"{side}_pieces"]] for side in ("source", "target")
        )
        return Look(source, target, *(seen[kind] for kind in Attention._fields))

    def _align(self, text: Tensor, translation: Tensor) -> dict[str, Tensor]:
        """Also attention [B, T, S], the last decoder layer's, its mean over heads, and
        token_log_probs [B, T].
        """
        _check_rows(text, translation)
        source = self.codec.cut(text, self.max_source).tokens
        target = self.codec.cut(translation, self.max_target).tokens
        reading = self.read(source, target)
        return {
            **self._pieces(source, target),
            "attention": tf.reduce_mean(reading["cross"][:, -1], axis=1),  # [B, T, S]
            "token_log_probs": reading["token_log_probs"],
        }

    def _attention(self, text: Tensor, translation: Tensor) -> dict[str, Tensor]:
        """Also encoder [B, L, H, S, S], decoder [B, L, H, T, T] and cross [B, L, H, T, S]."""
        _check_rows(text, translation)
        source = self.codec.cut(text, SHOWN_PIECES).tokens
        target = self.codec.cut(translation, SHOWN_PIECES).tokens
        reading = self.read(source, target)
        kinds = {name: reading[name] for name in Attention._fields}
        return {**self._pieces(source, target), **kinds}

    def _read(self, source: Tensor, target: Tensor) -> dict[str, Tensor]:
        """All that the model makes of ids [B, S] and [B, T]."""
        log_probs, attention = attend(self.transformer, source, target)
        return {**attention._asdict(), "token_log_probs": log_probs}

    def _pieces(self, source: Tensor, target: Tensor) -> dict[str, Tensor]:
        return {
            "source_pieces": self.codec.names(source),
            "target_pieces": self.codec.names(target),
            "source_length": tf.math.count_nonzero(source, axis=1, dtype=tf.int32),
            "target_length": tf.math.count_nonzero(target, axis=1, dtype=tf.int32),
        }


def _check_rows(text: Tensor, translation: Tensor) -> None:
    """One row could pass for many otherwise: they would be broadcast."""
    message = "text and translation must have as many rows as each other"
    tf.debugging.assert_equal(tf.shape(text), tf.shape(translation), message)


def token_log_probs(transformer: Transformer, source: Tensor, target: Tensor) -> Tensor:
    """The log probability of each piece of a target [B, T], which ends with eos; 0 at padding.

    Their sum over a hypothesis is the log probability that search found for it.
    """
    memory, memory_mask = transformer.encode(source)
    hidden = transformer.decode(shifted(target), memory, memory_mask)
    return _log_probs(transformer, hidden, target)


def attend(transformer: Transformer, source: Tensor, target: Tensor) -> tuple[Tensor, Attention]:
    """The same, and what every head attends to while it predicts each piece."""
    hidden, attention = transformer.attend(source, shifted(target))
    return _log_probs(transformer, hidden, target), attention


def _log_probs(transformer: Transformer, hidden: Tensor, target: Tensor) -> Tensor:
    logits = output_projection(transformer).logits(hidden)  # [B, T, V']
    log_probs = tf.gather(tf.nn.log_softmax(logits), target, batch_dims=2)  # [B, T]
    return tf.where(target == PAD, 0.0, log_probs)


def shifted(target: Tensor) -> Tensor:
    """[B, T] pieces + eos -> bos + pieces: what is read where each piece is predicted.

    An eos stays where padding follows it; no real position looks there.
    """
    begin = tf.fill([tf.shape(target)[0], 1], BOS)
    return tf.concat([begin, target[:, :-1]], axis=1)
