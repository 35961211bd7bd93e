"""The Translator: text in, text out. What is validated, evaluated and served is this one object."""

from collections.abc import Callable
from pathlib import Path

import tensorflow as tf

from tfnmt.config import Config, DecodingConfig, SamplingConfig
from tfnmt.data.preparation.tokenizer import Tokenizer
from tfnmt.decoding.lines import MISSING
from tfnmt.decoding.search import Cache, Hypotheses, Search, Step, greedy_search, sample
from tfnmt.decoding.searcher import Searcher, first, in_halves
from tfnmt.decoding.text import TEXT, TOKENS, TextCodec
from tfnmt.model.layers import Tensor
from tfnmt.model.transformer import Transformer

COUNT = tf.TensorSpec([], tf.int32, name="count")
DRAWS = tf.TensorSpec([None, None], tf.float32, name="draws")


class Translator:
    """Translates batches of strings in one graph, whatever their number and length.

    `translate` searches as the configuration says, `greedy` takes the likeliest piece at each step.
    Both map text [B] to a dictionary: translation [B], score [B] (log probability over length
    penalty) and truncated [B] (whether the source was cut). A text of no pieces gives '' and 0.

    `tokenize`, `search` and `detokenize` are the three stages of `translate`, each a graph; `beam`
    is what `search` and `nbest` both take their hypotheses from, `likeliest` what `greedy` does.
    """

    def __init__(
        self,
        transformer: Transformer,
        tokenizer_model: bytes,
        decoding: DecodingConfig,
        prefix: str = "",
    ) -> None:
        """Every translation begins with the pieces of the prefix."""
        self.transformer = transformer
        self.codec = TextCodec(tokenizer_model, decoding.max_source_length)
        self.decoding = decoding
        (pieces,) = Tokenizer(tokenizer_model).encode([prefix])
        self.searcher = Searcher(transformer, decoding, pieces)
        # Nothing in there is for AutoGraph to rewrite, and its looking costs seconds. The stages
        # are graphs of their own, which the others call: each is traced and saved but once.
        self.translate = tf.function(self._translate, input_signature=[TEXT], autograph=False)
        self.greedy = tf.function(self._greedy, input_signature=[TEXT], autograph=False)
        self.nbest = tf.function(self._nbest, input_signature=[TEXT], autograph=False)
        self.tokenize = tf.function(self._tokenize, input_signature=[TEXT], autograph=False)
        self.search = tf.function(self._search, input_signature=[TOKENS], autograph=False)
        self.beam = in_halves(self.searcher.beam, [TOKENS, COUNT])
        self.likeliest = in_halves(self._likeliest, [TOKENS])
        self.detokenize = tf.function(self._detokenize, input_signature=[TOKENS], autograph=False)

    def sampler(self, sampling: SamplingConfig) -> Callable[[Tensor, Tensor], dict[str, Tensor]]:
        """text [B], draws [B, T] between 0 and 1 -> what `translate` gives, drawn piece by piece.

        There is a draw for each piece: T is the most that a translation may have. Each row has
        draws of its own, so many rows are not taken apart.
        """

        def translate(text: Tensor, draws: Tensor) -> dict[str, Tensor]:
            def find(step: Step, cache: Cache, limits: Tensor, search: Search) -> Hypotheses:
                return sample(step, cache, limits, search, sampling, draws)

            source = self.tokenize(text)
            found = self.searcher.find(source["tokens"], find)
            return self.answer(first(found), source["truncated"])

        return tf.function(translate, input_signature=[TEXT, DRAWS], autograph=False)

    def _translate(self, text: Tensor) -> dict[str, Tensor]:
        source = self.tokenize(text)
        return self.answer(self.search(source["tokens"]), source["truncated"])

    def _greedy(self, text: Tensor) -> dict[str, Tensor]:
        source = self.tokenize(text)
        return self.answer(first(self.likeliest(source["tokens"])), source["truncated"])

    def _tokenize(self, text: Tensor) -> dict[str, Tensor]:
        """tokens [B, S], eos last, padded with 0; truncated [B]."""
        return self.codec.encode(text)._asdict()

    def _search(self, tokens: Tensor) -> dict[str, Tensor]:
        """tokens [B, S] of sources -> tokens [B, T] of translations; score [B]."""
        return first(self.beam(tokens, 1))

    def _likeliest(self, tokens: Tensor) -> Hypotheses:
        """tokens [B, S] of sources -> one hypothesis of each."""
        return self.searcher.find(tokens, greedy_search)

    def _detokenize(self, tokens: Tensor) -> dict[str, Tensor]:
        """tokens [B, T] -> translation [B]."""
        return {"translation": self.codec.decode(tokens)}

    def _nbest(self, text: Tensor) -> dict[str, Tensor]:
        """translations and scores [B, K], truncated [B]; the best first, no text twice.

        What is not there, for fewer were found or several read the same, is '' with score MISSING
        and comes last.
        """
        source = self.tokenize(text)
        beams = self.decoding.beam_size
        found = self.beam(source["tokens"], beams)
        tokens = tf.reshape(found.tokens, [-1, tf.shape(found.tokens)[2]])  # [B * K, T]
        texts = tf.reshape(self.codec.decode(tokens), [-1, beams])  # [B, K]
        scores = tf.concat([first(found)["score"][:, None], found.scores[:, 1:]], axis=1)
        same = tf.linalg.band_part(tf.ones([beams, beams], tf.bool), -1, 0)
        same &= ~tf.eye(beams, dtype=tf.bool)  # [K, K]: what came before
        again = tf.reduce_any(same & (texts[:, :, None] == texts[:, None, :]), axis=2)  # [B, K]
        scores = tf.where(again | (scores == -float("inf")), MISSING, scores)
        scores, order = tf.math.top_k(scores, k=beams)  # stable: the best stay first
        texts = tf.where(scores == MISSING, "", tf.gather(texts, order, batch_dims=1))
        return {"translations": texts, "scores": scores, "truncated": source["truncated"]}

    def answer(self, found: dict[str, Tensor], truncated: Tensor) -> dict[str, Tensor]:
        """What was found for the pieces of texts, as `translate` gives it."""
        text = self.detokenize(found["tokens"])
        return {**text, "score": found["score"], "truncated": truncated}


def load_translator(
    weights: Path, config: Config, tokenizer_model: bytes, prefix: str = ""
) -> Translator:
    """The Translator of a run's weights."""
    transformer = Transformer(config.model, Tokenizer(tokenizer_model).vocab_size)
    transformer.load_weights(weights)
    return Translator(transformer, tokenizer_model, config.decoding, prefix)
