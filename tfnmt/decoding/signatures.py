"""The graphs of a model by name: what a run translates with, and what its export holds."""

from tfnmt.decoding.inspector import Inspector
from tfnmt.decoding.lines import Signatures
from tfnmt.decoding.translator import Translator


def signatures(translator: Translator) -> Signatures:
    """Each takes any number of rows; the classes say what they give."""
    inspector = Inspector(translator.transformer, translator.codec, translator.decoding)
    return {
        "serving_default": translator.translate,
        "greedy": translator.greedy,
        "nbest": translator.nbest,
        "align": inspector.align,
        "attention": inspector.attention,
        "tokenize": translator.tokenize,
        "search": translator.search,
        "detokenize": translator.detokenize,
    }
