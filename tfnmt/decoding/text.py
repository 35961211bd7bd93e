"""Text to ids and back, inside the graph."""

from typing import NamedTuple

import keras_nlp
import tensorflow as tf

from tfnmt.data.preparation.tokenizer import BOS, EOS, PAD, Tokenizer
from tfnmt.model.layers import Tensor
from tfnmt.runtime.startup import silence_stderr

TEXT = tf.TensorSpec([None], tf.string, name="text")
TOKENS = tf.TensorSpec([None, None], tf.int32, name="tokens")


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
        # As graphs even when called eagerly: keras_nlp returns lists outside of a graph.
        self.encode = tf.function(self._encode, input_signature=[TEXT], autograph=False)
        self.decode = tf.function(self._decode, input_signature=[TOKENS], autograph=False)

    def truncate(self, text: Tensor, max_length: int) -> Source:
        """Encode strings [B], truncated to `max_length` tokens with EOS. Call it in a graph."""
        pieces = self.sentencepiece.tokenize(_valid(text))  # [B, (S)]
        max_pieces = max_length - 1  # leaves room for EOS
        truncated = pieces.row_lengths() > max_pieces
        ends = tf.fill([pieces.nrows(), 1], EOS)
        tokens = tf.concat([pieces[:, :max_pieces], ends], axis=1).to_tensor(PAD)
        # An empty batch has no column. The Transformer needs at least one.
        missing = tf.maximum(1 - tf.shape(tokens)[1], 0)
        return Source(tf.pad(tokens, [[0, 0], [0, missing]]), truncated)

    def names(self, tokens: Tensor) -> Tensor:
        """Map ids [B, T] to token strings [B, T]; '' at padding."""
        return tf.gather(tf.constant(self.token_names), tokens)

    def _encode(self, text: Tensor) -> Source:
        """Encode strings [B], truncated to the limit of the source."""
        return self.truncate(text, self.max_length)

    def _decode(self, tokens: Tensor) -> Tensor:
        """Decode ids [B, T] to strings [B], without BOS, EOS and padding."""
        is_text = (tokens != PAD) & (tokens != BOS) & (tokens != EOS)
        return _valid(self.sentencepiece.detokenize(tf.ragged.boolean_mask(tokens, is_text)))


def _token_names(tokenizer_model: bytes) -> list[bytes]:
    names = [name.encode() for name in Tokenizer(tokenizer_model).tokens()]
    names[PAD] = b""
    return names


def _valid(text: Tensor) -> Tensor:
    """Replace bytes that are not UTF-8 with U+FFFD."""
    return tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace")
