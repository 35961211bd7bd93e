"""Text to ids and back, inside the graph."""

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature
from typing import Any, NamedTuple

import keras_nlp
import tensorflow as tf

from tfnmt.data.preparation.tokenizer import BOS, EOS, PAD, Tokenizer
from tfnmt.model.layers import Tensor
from tfnmt.runtime.startup import silence_stderr

TEXT = tf.TensorSpec([None], tf.string, name="text")
TOKENS = tf.TensorSpec([None, None], tf.int32, name="tokens")
LANGUAGE = tf.TensorSpec([None], tf.string, name="target")
"""The language code to translate each text to."""


class Source(NamedTuple):
    """Encoded source texts."""

    tokens: Tensor  # [B, S] tokens and EOS, padded with 0
    truncated: Tensor  # [B] whether the text was longer than the limit


class TextCodec:
    """The SentencePiece model as operations that a SavedModel can hold.

    It gives the same ids as `tfnmt.data.preparation.tokenizer.Tokenizer`. Its text is valid UTF-8,
    whatever the input.
    """

    def __init__(self, tokenizer_model: bytes, max_source_length: int) -> None:
        """Create a codec.

        Args:
            tokenizer_model: The content of a SentencePiece model file.
            max_source_length: Limit of `encode` in tokens, EOS included.
        """
        with silence_stderr():  # SentencePiece reports its normalizer on stderr
            self.sentencepiece = keras_nlp.tokenizers.SentencePieceTokenizer(proto=tokenizer_model)
        self.max_length = max_source_length
        self.token_names = _token_names(tokenizer_model)
        self.languages = Tokenizer(tokenizer_model).language_tokens
        # As graphs even when called eagerly: keras_nlp returns lists outside of a graph.
        self.encode = self.graph(self._encode, [TEXT])
        self.decode = tf.function(self._decode, input_signature=[TOKENS], autograph=False)

    def graph(self, function: Callable[..., Any], inputs: list[tf.TensorSpec]) -> Any:
        """Return a graph of a function that encodes sources.

        Args:
            function: Its last parameter is the target language [B], by default None.
            inputs: Its inputs, without the target language, which only some models have.
        """
        inputs = [*inputs, LANGUAGE] if self.languages else inputs

        @wraps(function)
        def call(*tensors: Tensor) -> Any:
            return function(*tensors)

        # Without it, the graph of a single direction would have a parameter without a value.
        call.__signature__ = Signature(  # type: ignore[attr-defined]
            [Parameter(spec.name, Parameter.POSITIONAL_OR_KEYWORD) for spec in inputs]
        )
        # AutoGraph has nothing to rewrite here, and looking takes it seconds.
        return tf.function(call, input_signature=inputs, autograph=False)

    def truncate(self, text: Tensor, max_length: int, target: Tensor | None = None) -> Source:
        """Encode strings, truncated to `max_length` tokens with EOS. Call it in a graph.

        Args:
            text: [B] strings.
            max_length: The limit in tokens, which include EOS and a language token.
            target: [B] languages whose tokens the sources begin with, or None.
        """
        pieces = self.sentencepiece.tokenize(_valid(text))  # [B, (S)]
        max_pieces = max_length - (1 if target is None else 2)  # leaves room for EOS
        truncated = pieces.row_lengths() > max_pieces
        parts = [pieces[:, :max_pieces], tf.fill([pieces.nrows(), 1], EOS)]
        if target is not None:
            # An empty text has no language token, so that its translation is empty.
            has_text = pieces.row_lengths() > 0
            begins = self._language_tokens(text, target)
            parts.insert(0, tf.ragged.boolean_mask(begins, has_text[:, None]))
        tokens = tf.concat(parts, axis=1).to_tensor(PAD)
        # An empty batch has no column. The Transformer needs at least one.
        missing = tf.maximum(1 - tf.shape(tokens)[1], 0)
        return Source(tf.pad(tokens, [[0, 0], [0, missing]]), truncated)

    def names(self, tokens: Tensor) -> Tensor:
        """Map ids [B, T] to token strings [B, T]; '' at padding."""
        return tf.gather(tf.constant(self.token_names), tokens)

    def _encode(self, text: Tensor, target: Tensor | None = None) -> Source:
        """Encode strings [B], truncated to the limit of the source."""
        return self.truncate(text, self.max_length, target)

    def _language_tokens(self, text: Tensor, target: Tensor) -> Tensor:
        """Return the language token of each text, [B, 1]. An unknown language is an error."""
        target = checked_rows(target, text, "text and target must have the same number of rows")
        same = target[:, None] == tf.constant([*self.languages])  # [B, languages]
        unknown = f"unknown target language; the model translates to {', '.join(self.languages)}"
        tf.debugging.assert_equal(tf.reduce_any(same, axis=1), True, unknown)
        tokens = tf.constant([*self.languages.values()])
        return tf.gather(tokens, tf.argmax(tf.cast(same, tf.int32), axis=1))[:, None]

    def _decode(self, tokens: Tensor) -> Tensor:
        """Decode ids [B, T] to strings [B], without BOS, EOS and padding."""
        is_text = (tokens != PAD) & (tokens != BOS) & (tokens != EOS)
        return _valid(self.sentencepiece.detokenize(tf.ragged.boolean_mask(tokens, is_text)))


def checked_rows(tensor: Tensor, other: Tensor, message: str) -> Tensor:
    """Return a tensor that must have as many rows as another one.

    Operations on the result run after the check. Otherwise their error could come first.
    """
    check = tf.debugging.assert_equal(tf.shape(tensor)[0], tf.shape(other)[0], message)
    with tf.control_dependencies([check]):
        return tf.identity(tensor)


def _token_names(tokenizer_model: bytes) -> list[bytes]:
    names = [name.encode() for name in Tokenizer(tokenizer_model).tokens()]
    names[PAD] = b""
    return names


def _valid(text: Tensor) -> Tensor:
    """Replace bytes that are not UTF-8 with U+FFFD."""
    return tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace")
