"""Writing a LiteRT file: the searches of a Translator as graphs for one sentence.

LiteRT derives all shapes from those of the inputs before it runs a graph. A graph therefore reads
sentences of any length, with as many operations and as few copies as for a fixed one.

Letters: S source length, T target length, K hypotheses, D d_model, V tokens of the vocabulary.
"""

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
from tfnmt.decoding.inspector import shift_right
from tfnmt.decoding.search import EXCLUDED_LOGIT, Hypotheses, padded_size
from tfnmt.decoding.searcher import Searcher
from tfnmt.decoding.translator import Translator, signatures
from tfnmt.exporting.inspection import inspect
from tfnmt.exporting.litert_parity import check_litert
from tfnmt.litert.files import CARD, EXTRA_LENGTH, GRAPHS, TOKENIZER, checksum
from tfnmt.loading.models import RunModel
from tfnmt.model.embedding import Embedding
from tfnmt.model.layers import LayerNorm, Tensor, leading_shape
from tfnmt.model.transformer import Transformer
from tfnmt.runtime.files import atomic_path, format_json
from tfnmt.runtime.startup import silence_stderr

PARITY = "parity.json"

CACHE_LENGTH = tf.TensorSpec([None], tf.int32, name="room")
"""Any [T]. Its size is the cache length: the most tokens that a translation can have."""

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
        if missing := padded_size(size) - size:
            logits = tf.pad(logits, [[0, 0], [0, missing]], constant_values=EXCLUDED_LOGIT)
        return tf.reshape(logits, (*leading_shape(hidden), size + missing))


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
        card = {
            **card,
            EXTRA_LENGTH: extra_length(translator.decoding),
            "checksums": {name: checksum(temporary / name) for name in files},
        }
        (temporary / CARD).write_bytes(format_json(card))
        report = check_litert(signatures(translator), texts, pairs, temporary, card)
        (temporary / PARITY).write_bytes(format_json(report))
        (temporary / CARD).write_bytes(format_json({**card, "parity": report}))
    return report


def extra_length(decoding: DecodingConfig) -> int:
    """Return the tokens that a translation may have more than its source in the first search.

    With a length penalty, the search continues for some steps after it found the best translation.
    """
    return 16 if decoding.length_penalty else 6


def convert(
    transformer: Transformer, graphs: Iterable[tuple[str, Any]], quantization: str
) -> bytes:
    """Return the LiteRT file of some graphs.

    Args:
        transformer: The model, whose weights the graphs share.
        graphs: Graphs with their names.
        quantization: float32, float16 or int8. Products of int8 weights quantize their inputs too.
    """
    with _litert_layers(transformer):
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


# --- Layers ---------------------------------------------------------------------------------------


@contextmanager
def _litert_layers(transformer: Transformer) -> Iterator[None]:
    """Embed and normalize with operations that suit LiteRT.

    Its general gather needs floats: each translation would first convert the whole table. The
    converter folds a layer normalization into the next projection within a loop only, so that the
    other graphs would need a second copy of these weights.
    """
    calls: dict[Any, Any] = {
        embedding: partial(_embed, embedding)
        for embedding in (transformer.source_embedding, transformer.target_embedding)
    }
    for block in transformer.decoder.blocks:
        residuals = (
            block.self_attention_residual,
            block.cross_attention_residual,
            block.feed_forward_residual,
        )
        calls |= {residual.norm: partial(_normalize, residual.norm) for residual in residuals}
    for layer, call in calls.items():
        layer.call = call
    try:
        yield
    finally:
        for layer in calls:
            del layer.call


def _normalize(norm: LayerNorm, x: Tensor) -> Tensor:
    """Normalize x [B, T, D] as `LayerNorm.call` does, apart from the next projection."""
    normalized = LayerNorm.call(norm, x)
    return tf.minimum(normalized, normalized.dtype.max)


def _embed(embedding: Embedding, tokens: Tensor) -> Tensor:
    """Embed ids [B, T] as `Embedding.call` does, [B, T, D]."""
    table = tf.convert_to_tensor(embedding.table)
    rows = _lookup(table, tf.reshape(tokens, [-1]))  # [B * T, D]
    return tf.reshape(rows, (*leading_shape(tokens), embedding.d_model)) * embedding.d_model**0.5


@partial(tf.function, experimental_implements="embedding_matmul", autograph=False)
def _lookup(table: Tensor, ids: Tensor) -> Tensor:
    """Look up rows. The converter replaces functions of this name by its lookup operation."""
    return tf.gather(table, ids)


# --- Graphs ---------------------------------------------------------------------------------------


def _graphs(translator: Translator) -> Iterator[tuple[str, Any]]:
    """Yield the graphs with their names. Each reads one sentence of any length."""
    searcher, output = translator.searcher, SharedOutputProjection(translator.transformer)
    yield "search", search_graph(searcher)
    yield "greedy", _greedy_graph(searcher, output)
    yield "align", _align_graph(translator.transformer, output)
    yield "attention", _attention_graph(translator.transformer)
    yield "inspect", _inspection_graph(translator.transformer, output)


def search_graph(searcher: Searcher) -> Any:
    """Return the graph of beam search."""
    output = SharedOutputProjection(searcher.transformer)

    def search(source: Tensor, room: Tensor, count: Tensor) -> dict[str, Tensor]:
        found = searcher.static_beam(source, output, tf.size(room), count)
        return _outputs(found, searcher.limits(source))

    return tf.function(search, [_ids("source"), CACHE_LENGTH, COUNT], autograph=False)


def _greedy_graph(searcher: Searcher, output: Any) -> Any:
    def greedy(source: Tensor, room: Tensor) -> dict[str, Tensor]:
        found = searcher.static_greedy(source, output, tf.size(room))
        return _outputs(found, searcher.limits(source))

    return tf.function(greedy, [_ids("source"), CACHE_LENGTH], autograph=False)


def _align_graph(transformer: Transformer, output: Any) -> Any:
    """Force-decode: log probabilities [B, T], and attention [B, T, S] as in the signature align."""

    def align(source: Tensor, target: Tensor) -> dict[str, Tensor]:
        hidden, weights = transformer.call_with_attention(source, shift_right(target))
        log_probs = tf.nn.log_softmax(output.logits(hidden))
        return {
            "attention": tf.reduce_mean(weights.cross[:, -1], axis=1),
            "token_log_probs": tf.gather(log_probs, target, batch_dims=2),
        }

    return tf.function(align, [_ids("source"), _ids("target")], autograph=False)


def _attention_graph(transformer: Transformer) -> Any:
    def attention(source: Tensor, target: Tensor) -> dict[str, Tensor]:
        _, weights = transformer.call_with_attention(source, shift_right(target))
        return weights._asdict()

    return tf.function(attention, [_ids("source"), _ids("target")], autograph=False)


def _inspection_graph(transformer: Transformer, output: Any) -> Any:
    def inspection(source: Tensor, target: Tensor) -> dict[str, Tensor]:
        return inspect(transformer, output, source, target)

    return tf.function(inspection, [_ids("source"), _ids("target")], autograph=False)


def _ids(name: str) -> tf.TensorSpec:
    return tf.TensorSpec([1, None], tf.int32, name=name)


def _outputs(found: Hypotheses, limits: Tensor) -> dict[str, Tensor]:
    """Return tokens [B, K, T], scores [B, K], complete [B] and limit [B]."""
    return {**found._asdict(), "limit": limits}
