"""Text to ids and back, inside the graph."""

from typing import NamedTuple

import keras_nlp
import tensorflow as tf

from tfnmt.data.preparation.tokenizer import BOS, EOS, PAD, Tokenizer
from tfnmt.model.layers import Tensor
from tfnmt.runtime.startup import silent_stderr

TEXT = tf.TensorSpec([None], tf.string, name="text")
TOKENS = tf.TensorSpec([None, None], tf.int32, name="tokens")


class Source(NamedTuple):
    """Texts as the encoder reads them."""

    tokens: Tensor  # [B, S] pieces + eos, padded with 0
    truncated: Tensor  # [B] whether the text was longer than is read


class TextCodec:
    """The SentencePiece model as operations that a SavedModel can hold.

    Gives the same ids as `tfnmt.data.preparation.tokenizer.Tokenizer`. Its text is always valid
    UTF-8, whatever the input.
    """

    def __init__(self, tokenizer_model: bytes, max_source_length: int) -> None:
        with silent_stderr():  # SentencePiece announces its normalizer
            self.pieces = keras_nlp.tokenizers.SentencePieceTokenizer(proto=tokenizer_model)
        self.max_length = max_source_length
        self.piece_names = _piece_names(tokenizer_model)
        # Graphs, also when called outside of one: there keras_nlp would answer with lists.
        self.encode = tf.function(self._encode, input_signature=[TEXT], autograph=False)
        self.decode = tf.function(self._decode, input_signature=[TOKENS], autograph=False)

    def cut(self, text: Tensor, max_length: int) -> Source:
        """[B] strings -> their ids, at most `max_length` with eos; only inside of a graph."""
        pieces = self.pieces.tokenize(_valid(text))  # [B, (S)]
        max_pieces = max_length - 1  # and eos
        truncated = pieces.row_lengths() > max_pieces
        ends = tf.fill([pieces.nrows(), 1], EOS)
        tokens = tf.concat([pieces[:, :max_pieces], ends], axis=1).to_tensor(PAD)
        # Without any text there is no column either; a Transformer needs one.
        missing = tf.maximum(1 - tf.shape(tokens)[1], 0)
        return Source(tf.pad(tokens, [[0, 0], [0, missing]]), truncated)

    def names(self, tokens: Tensor) -> Tensor:
        """[B, T] ids -> [B, T] pieces as strings; '' for padding."""
        return tf.gather(tf.constant(self.piece_names), tokens)

    def _encode(self, text: Tensor) -> Source:
        """[B] strings -> their ids; a longer text than `max_source_length` is cut."""
        return self.cut(text, self.max_length)

    def _decode(self, tokens: Tensor) -> Tensor:
        """[B, T] ids -> [B] strings; bos, eos and padding leave no trace."""
        is_piece = (tokens != PAD) & (tokens != BOS) & (tokens != EOS)
        return _valid(self.pieces.detokenize(tf.ragged.boolean_mask(tokens, is_piece)))


def _piece_names(tokenizer_model: bytes) -> list[bytes]:
    names = [name.encode() for name in Tokenizer(tokenizer_model).pieces()]
    names[PAD] = b""
    return names


def _valid(text: Tensor) -> Tensor:
    """The text with U+FFFD for what is not UTF-8."""
    return tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace")
