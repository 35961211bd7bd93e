"""Writing a LiteRT file: the searches of a Translator as graphs with static shapes.

Letters: S source length, T target length, K hypotheses, D d_model, V tokens of the vocabulary.
"""

import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.lite.tools import flatbuffer_utils

from tfnmt.config import DecodingConfig
from tfnmt.data.corpora.text_files import Pair
from tfnmt.data.preparation.tokenizer import BOS, PAD
from tfnmt.decoding.inspector import MAX_ATTENTION_TOKENS, shift_right
from tfnmt.decoding.search import EXCLUDED_LOGIT, Hypotheses, padded_size
from tfnmt.decoding.searcher import Searcher
from tfnmt.decoding.translator import Translator, signatures
from tfnmt.exporting.litert_parity import check_litert
from tfnmt.litert.files import CARD, GRAPHS, TOKENIZER, checksum
from tfnmt.litert.interpreters import Size
from tfnmt.loading.models import RunModel
from tfnmt.model.embedding import Embedding
from tfnmt.model.layers import Tensor
from tfnmt.model.transformer import AttentionWeights, Transformer
from tfnmt.runtime.files import atomic_path
from tfnmt.runtime.startup import silence_stderr

PARITY = "parity.json"

SOURCE_LENGTHS = (8, 12, 16, 20, 24, 28, 32, 40, 48, 64, 128)
"""Source lengths of the graphs, below the maximum of the model, which is the last one."""

EXTRA_LENGTH = 6
"""Tokens that a translation may have more than the source length of the first graph tried."""

COUNT = tf.TensorSpec([], tf.int32, name="count")


@dataclass(frozen=True)
class SharedOutputProjection:
    """The output projection that reads the embedding table unchanged: the file stores it once."""

    transformer: Transformer

    def logits(self, hidden: Tensor) -> Tensor:
        """Project hidden states [B, T, D] to logits [B, T, V'], as `OutputProjection` does."""
        table = tf.convert_to_tensor(self.transformer.output_embedding.table)  # [V, D]
        size = table.shape[0]
        ids = tf.range(size)
        bias = tf.where((ids != PAD) & (ids != BOS), 0.0, EXCLUDED_LOGIT)
        rows = tf.reshape(tf.cast(hidden, tf.float32), [-1, hidden.shape[-1]])  # [B * T, D]
        # Without this, the converter folds the last norm into a second copy of the table.
        rows = tf.minimum(rows, rows.dtype.max)
        logits = tf.matmul(rows, table, transpose_b=True) + bias  # [B * T, V]
        padding = [[0, 0], [0, padded_size(size) - size]]
        logits = tf.pad(logits, padding, constant_values=EXCLUDED_LOGIT)
        return tf.reshape(logits, [-1, hidden.shape[1], padded_size(size)])


def publish_litert(
    model: RunModel, card: dict[str, Any], texts: Sequence[str], pairs: Sequence[Pair], path: Path
) -> dict[str, Any]:
    """Write a version of a LiteRT export if it reproduces the output of the run.

    Args:
        model: The run.
        card: The model card, with `quantization`: float32, float16 or int8.
        texts: The texts of the parity check.
        pairs: Validation pairs for its BLEU; none omit it.
        path: The new folder.

    Returns:
        The parity report, as stored in parity.json and in the card.

    Raises:
        UserError: The export cannot run without TensorFlow, or a float32 export differs.
    """
    translator, tokenizer_model = model.load_translator(), model.run.tokenizer_model()
    with atomic_path(path) as temporary:
        temporary.mkdir()
        content = convert(translator.transformer, _graphs(translator), card["quantization"])
        (temporary / GRAPHS).write_bytes(content)
        (temporary / TOKENIZER).write_bytes(tokenizer_model)
        files = (GRAPHS, TOKENIZER)
        card = {**card, "checksums": {name: checksum(temporary / name) for name in files}}
        write_json(temporary / CARD, card)
        report = check_litert(signatures(translator), texts, pairs, temporary, card)
        write_json(temporary / PARITY, report)
        write_json(temporary / CARD, {**card, "parity": report})
    return report


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a readable JSON file."""
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def convert(
    transformer: Transformer, graphs: Iterable[tuple[str, Any]], quantization: str
) -> bytes:
    """Return the LiteRT file of some graphs.

    Args:
        transformer: The model, whose weights the graphs share.
        graphs: Graphs with their names.
        quantization: float32, float16 or int8. Products of int8 weights quantize their inputs too.
    """
    with _embedding_lookups(transformer):
        signatures = {name: graph.get_concrete_function() for name, graph in graphs}
    module = tf.Module()
    module.weights = [variable.value for variable in transformer.variables]
    with tempfile.TemporaryDirectory() as folder, silence_stderr():
        # The converter shares the weights between graphs only if they come from a SavedModel.
        tf.saved_model.save(module, folder, signatures=signatures)
        converter = tf.lite.TFLiteConverter.from_saved_model(
            folder, signature_keys=list(signatures)
        )
        _quantize(converter, quantization)
        return _without_names(converter.convert())


def _without_names(content: bytes) -> bytes:
    """Remove the names of the tensors, which take about a megabyte. Signatures do not use them."""
    model = flatbuffer_utils.read_model_from_bytearray(bytearray(content))
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            tensor.name = None
    return bytes(flatbuffer_utils.convert_object_to_bytearray(model))


def _quantize(converter: Any, quantization: str) -> None:
    if quantization == "float32":
        return
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if quantization == "float16":
        converter.target_spec.supported_types = [tf.float16]
    # One scale per matrix. With one per row, each graph would store all scales again.
    converter._experimental_disable_per_channel = True


# --- Embedding ------------------------------------------------------------------------------------


@contextmanager
def _embedding_lookups(transformer: Transformer) -> Iterator[None]:
    """Embed with LiteRT's operation for it, which reads int8 rows.

    Its general gather needs floats: each translation would first convert the whole table.
    """
    embeddings = {id(each): each for each in _input_embeddings(transformer)}.values()
    for embedding in embeddings:
        embedding.call = partial(_embed, embedding)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for embedding in embeddings:
            del embedding.call


def _input_embeddings(transformer: Transformer) -> tuple[Embedding, Embedding]:
    return transformer.source_embedding, transformer.target_embedding


def _embed(embedding: Embedding, tokens: Tensor) -> Tensor:
    """Embed ids [B, T] as `Embedding.call` does, [B, T, D]."""
    table = tf.convert_to_tensor(embedding.table)
    rows = _lookup(table, tf.reshape(tokens, [-1]))  # [B * T, D]
    return tf.reshape(rows, [*tokens.shape, embedding.d_model]) * embedding.d_model**0.5


@partial(tf.function, experimental_implements="embedding_matmul", autograph=False)
def _lookup(table: Tensor, ids: Tensor) -> Tensor:
    """Look up rows. The converter replaces functions of this name by its lookup operation."""
    return tf.gather(table, ids)


# --- Graphs ---------------------------------------------------------------------------------------


def _graphs(translator: Translator) -> Iterator[tuple[str, Any]]:
    """Yield the graphs with their names. tfnmt/litert/interpreters.py describes the names."""
    decoding = translator.decoding
    sizes = search_sizes(decoding)
    yield from search_graphs(translator.searcher, sizes)
    output = SharedOutputProjection(translator.transformer)
    for size in sizes[::-2]:
        yield _name("greedy", size), _greedy_graph(translator, output, size)
    for size in pair_sizes(decoding):
        yield _name("align", size), _align_graph(translator, output, size)
    attention = Size(MAX_ATTENTION_TOKENS, MAX_ATTENTION_TOKENS)
    yield _name("attention", attention), _attention_graph(translator, attention)


def search_graphs(searcher: Searcher, sizes: Iterable[Size]) -> Iterator[tuple[str, Any]]:
    """Yield the graphs of beam search with their names."""
    output = SharedOutputProjection(searcher.transformer)
    for size in sizes:
        yield _name("search", size), _search_graph(searcher, output, size)


def search_sizes(decoding: DecodingConfig) -> list[Size]:
    """Return the sizes of the searches. The last one has room for every translation."""
    longest = decoding.max_source_length
    return [
        *(
            Size(length, min(length + EXTRA_LENGTH, decoding.max_translation_length))
            for length in SOURCE_LENGTHS
            if length < longest
        ),
        Size(longest, decoding.max_translation_length),
    ]


def pair_sizes(decoding: DecodingConfig) -> list[Size]:
    """Return the sizes of the graphs that force-decode translations."""
    longest = max(decoding.max_translation_length, decoding.max_source_length)
    lengths = [size.source for size in search_sizes(decoding)[-3::-2]][::-1]
    return [
        *(Size(length, length) for length in lengths),
        Size(decoding.max_source_length, longest),
    ]


def _name(kind: str, size: Size) -> str:
    return f"{kind}_{size.source}_{size.target}"


def _search_graph(searcher: Searcher, output: Any, size: Size) -> Any:
    def search(source: Tensor, count: Tensor) -> dict[str, Tensor]:
        steps = tf.constant(size.target)
        found = searcher.static_beam(source, output, steps, count)
        return _outputs(found, searcher.limits(source))

    return tf.function(search, [_ids("source", size.source), COUNT], autograph=False)


def _greedy_graph(translator: Translator, output: Any, size: Size) -> Any:
    def greedy(source: Tensor) -> dict[str, Tensor]:
        steps = tf.constant(size.target)
        found = translator.searcher.static_greedy(source, output, steps)
        return _outputs(found, translator.searcher.limits(source))

    return tf.function(greedy, [_ids("source", size.source)], autograph=False)


def _align_graph(translator: Translator, output: Any, size: Size) -> Any:
    """Force-decode: log probabilities [B, T], and attention [B, T, S] as in the signature align."""

    def align(source: Tensor, target: Tensor) -> dict[str, Tensor]:
        hidden, weights = translator.transformer.call_with_attention(source, shift_right(target))
        log_probs = tf.nn.log_softmax(output.logits(hidden))
        return {
            "attention": tf.reduce_mean(weights.cross[:, -1], axis=1),
            "token_log_probs": tf.gather(log_probs, target, batch_dims=2),
        }

    return tf.function(align, _pair(size), autograph=False)


def _attention_graph(translator: Translator, size: Size) -> Any:
    def attention(source: Tensor, target: Tensor) -> dict[str, Tensor]:
        _, weights = translator.transformer.call_with_attention(source, shift_right(target))
        return {name: getattr(weights, name) for name in AttentionWeights._fields}

    return tf.function(attention, _pair(size), autograph=False)


def _pair(size: Size) -> list[tf.TensorSpec]:
    return [_ids("source", size.source), _ids("target", size.target)]


def _ids(name: str, length: int) -> tf.TensorSpec:
    return tf.TensorSpec([1, length], tf.int32, name=name)


def _outputs(found: Hypotheses, limits: Tensor) -> dict[str, Tensor]:
    """Return tokens [B, K, T], scores [B, K], complete [B] and limit [B]."""
    return {**found._asdict(), "limit": limits}
