"""The Translator: text in, text out. Validation, evaluation and serving use this one object."""

from collections.abc import Callable
from pathlib import Path

import tensorflow as tf

from tfnmt.config import Config, DecodingConfig, SamplingConfig
from tfnmt.data.preparation.tokenizer import PAD, Tokenizer
from tfnmt.decoding.inspector import Inspector
from tfnmt.decoding.lines import MISSING_SCORE, Signatures
from tfnmt.decoding.searcher import Searcher, best_hypothesis, split_batches
from tfnmt.decoding.text import TEXT, TOKENS, TextCodec
from tfnmt.model.layers import Tensor
from tfnmt.model.transformer import Transformer

COUNT = tf.TensorSpec([], tf.int32, name="count")
RANDOM_NUMBERS = tf.TensorSpec([None, None], tf.float32, name="random_numbers")


class Translator:
    """Translates batches of strings in one graph, for any number and length of strings.

    `translate` searches as configured, `greedy` takes the most probable token at each step. Both
    map text [B] to `translation` [B], `score` [B] (log probability divided by the length penalty)
    and `truncated` [B] (whether the source was too long). Text without tokens gives '' and 0. With
    language tokens, they also take `target` [B], the languages to translate to.

    `tokenize`, `search` and `detokenize` are the three stages of `translate`, each a graph of its
    own. `beam` and `greedy_search` are the searches that these graphs share.

    Example:
        translator = load_translator(weights, config, tokenizer_model)
        translator.translate(tf.constant(["How are you?"]))["translation"]
    """

    def __init__(
        self,
        transformer: Transformer,
        tokenizer_model: bytes,
        decoding: DecodingConfig,
        prefix: str = "",
    ) -> None:
        """Create a translator.

        Args:
            transformer: The model.
            tokenizer_model: The content of a SentencePiece model file.
            decoding: Beam size, length penalty, length limits and constraints.
            prefix: Text that every translation begins with.
        """
        self.transformer = transformer
        self.codec = TextCodec(tokenizer_model, decoding.max_source_length)
        self.decoding = decoding
        (prefix_ids,) = Tokenizer(tokenizer_model).encode([prefix])
        self.searcher = Searcher(transformer, decoding, prefix_ids)
        # Each stage is a graph that the others call, so that it is traced and saved only once.
        graph = self.codec.graph
        self.translate = graph(self._translate, [TEXT])
        self.greedy = graph(self._greedy, [TEXT])
        self.nbest = graph(self._nbest, [TEXT])
        self.tokenize = graph(self._tokenize, [TEXT])
        self.search = tf.function(self._search, input_signature=[TOKENS], autograph=False)
        self.beam = split_batches(self.searcher.beam, [TOKENS, COUNT])
        self.greedy_search = split_batches(self.searcher.greedy, [TOKENS])
        self.detokenize = tf.function(self._detokenize, input_signature=[TOKENS], autograph=False)

    def sampler(self, sampling: SamplingConfig) -> Callable[[Tensor, Tensor], dict[str, Tensor]]:
        """Build a graph that samples translations.

        It maps tokens [B, S] and random numbers [B, T] from [0, 1) to the outputs of `search`. T is
        the maximum length of a translation: there is one random number per token. Large batches
        are not split, because each row has random numbers of its own.
        """

        def sample(tokens: Tensor, random_numbers: Tensor) -> dict[str, Tensor]:
            return best_hypothesis(self.searcher.sample(tokens, sampling, random_numbers))

        return tf.function(sample, input_signature=[TOKENS, RANDOM_NUMBERS], autograph=False)

    def _translate(self, text: Tensor, *target: Tensor) -> dict[str, Tensor]:
        source = self.tokenize(text, *target)
        found = self.beam(source["tokens"], 1)
        return self._outputs(best_hypothesis(found), source["truncated"])

    def _greedy(self, text: Tensor, *target: Tensor) -> dict[str, Tensor]:
        source = self.tokenize(text, *target)
        found = self.greedy_search(source["tokens"])
        return self._outputs(best_hypothesis(found), source["truncated"])

    def _outputs(self, found: dict[str, Tensor], truncated: Tensor) -> dict[str, Tensor]:
        """Detokenize the tokens [B, T] that a search found; returns the outputs of `translate`."""
        text = self.detokenize(found["tokens"])
        return {**text, "score": found["score"], "truncated": truncated}

    def _tokenize(self, text: Tensor, *target: Tensor) -> dict[str, Tensor]:
        """Return tokens [B, S], EOS last and padded with 0, and truncated [B]."""
        return self.codec.encode(text, *target)._asdict()

    def _search(self, tokens: Tensor) -> dict[str, Tensor]:
        """Map source tokens [B, S] to translation tokens [B, T] and score [B]."""
        return best_hypothesis(self.beam(tokens, 1))

    def _detokenize(self, tokens: Tensor) -> dict[str, Tensor]:
        """Map tokens [B, T] to translation [B]."""
        return {"translation": self.codec.decode(tokens)}

    def _nbest(self, text: Tensor, *target: Tensor) -> dict[str, Tensor]:
        """Return the n-best list of each text [B], best first and no text twice.

        Returns:
            translations and scores [B, K], tokens [B, K, T] and truncated [B]. Missing entries
            (fewer hypotheses were found, or several give the same text) come last, as '' with
            score MISSING_SCORE and without tokens.
        """
        source = self.tokenize(text, *target)
        beams = self.decoding.beam_size
        found = self.beam(source["tokens"], beams)
        tokens = tf.reshape(found.tokens, [-1, tf.shape(found.tokens)[2]])  # [B * K, T]
        texts = tf.reshape(self.codec.decode(tokens), [-1, beams])  # [B, K]
        scores = tf.concat([best_hypothesis(found)["score"][:, None], found.scores[:, 1:]], axis=1)
        earlier = tf.linalg.band_part(tf.ones([beams, beams], tf.bool), -1, 0)
        earlier &= ~tf.eye(beams, dtype=tf.bool)  # [K, K]
        repeated = tf.reduce_any(earlier & (texts[:, :, None] == texts[:, None, :]), axis=2)
        scores = tf.where(repeated | (scores == -float("inf")), MISSING_SCORE, scores)  # [B, K]
        scores, order = tf.math.top_k(scores, k=beams)  # stable: the best stay first
        missing = scores == MISSING_SCORE
        tokens = tf.gather(found.tokens, order, batch_dims=1)
        tokens = tf.where(missing[:, :, None], PAD, tokens)
        longest = tf.reduce_max(tf.math.count_nonzero(tokens, axis=2))
        return {
            "translations": tf.where(missing, "", tf.gather(texts, order, batch_dims=1)),
            "scores": scores,
            "tokens": tokens[:, :, : tf.maximum(longest, 1)],
            "truncated": source["truncated"],
        }


def signatures(translator: Translator) -> Signatures:
    """Return the graphs of a model by signature name, all of SIGNATURES except `info`."""
    inspector = Inspector(translator.transformer, translator.codec, translator.decoding)
    return {
        "serving_default": translator.translate,
        "greedy": translator.greedy,
        "nbest": translator.nbest,
        "align": inspector.align,
        "align_tokens": inspector.align_tokens,
        "attention": inspector.attention,
        "tokenize": translator.tokenize,
        "search": translator.search,
        "detokenize": translator.detokenize,
    }


def load_translator(
    weights: Path, config: Config, tokenizer_model: bytes, prefix: str = ""
) -> Translator:
    """Load the Translator of a run.

    Args:
        weights: A weights file of the run.
        config: The configuration of the run. Its `decoding` section may have been changed.
        tokenizer_model: The content of the run's SentencePiece model file.
        prefix: Text that every translation begins with.
    """
    transformer = Transformer(config.model, Tokenizer(tokenizer_model).vocab_size)
    transformer.load_weights(weights)
    return Translator(transformer, tokenizer_model, config.decoding, prefix)
