"""Writing a CTranslate2 model: an engine in C++ for CPUs and NVIDIA GPUs, without TensorFlow.

model.bin, config.json, shared_vocabulary.json    what ctranslate2.Translator loads
tokenizer.model                                   the SentencePiece model
model_card.json                                   where the model comes from
README.txt                                        how to translate with it

Nothing here imports TensorFlow before a model is converted: what stands in the way is told at once.
"""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tfnmt.config import Config, DecodingConfig, ModelConfig
from tfnmt.data.preparation.tokenizer import BOS, PAD, Tokenizer
from tfnmt.errors import UserError
from tfnmt.runtime.files import written_aside

if TYPE_CHECKING:
    from tfnmt.model.transformer import Transformer

Spec = Any
Layer = Any
Variable = Any

QUANTIZATIONS = ("float32", "float16", "int8")
"""How weights can be stored; int8 has float32 for what is no matrix."""

POSITIONS = 1024
"""So many positions there are at least: by default CTranslate2 reads sources of that length."""

README = """\
A translator from {source} to {target}, made by tfnmt for CTranslate2 (weights: {quantization}).

    pip install ctranslate2 sentencepiece

    import ctranslate2
    import sentencepiece

    folder = "."  # this one
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=f"{{folder}}/tokenizer.model")
    translator = ctranslate2.Translator(folder, device="cpu")  # or "cuda"
    texts = ["..."]
    results = translator.translate_batch(
        tokenizer.encode(texts, out_type=str),
        max_batch_size=64,
{options}
    )
    for result in results:
        print(tokenizer.decode(result.hypotheses[0]))

The end of a source is added by the model, padding and <s> can never be part of a translation: the
pieces of SentencePiece are all it takes.

CTranslate2 divides a log probability by length^length_penalty, tfnmt by ((5 + length) / 6)^
length_penalty, and CTranslate2 stops at beam_size finished translations. With length_penalty=0, or
beam_size=1, both find the same translations; otherwise nearly the same.
"""


def check_export(folder: Path) -> None:
    """Raises what would stop an export: no CTranslate2, or a folder that holds something."""
    if find_spec("ctranslate2") is None:
        raise UserError("ctranslate2: not installed; pip install ctranslate2")
    if folder.is_dir() and any(folder.iterdir()):
        raise UserError(f"{folder}: holds something already; name a new folder")


def export_ctranslate2(
    transformer: "Transformer",
    config: Config,
    tokenizer_model: bytes,
    card: dict[str, Any],
    folder: Path,
    quantization: str,
) -> Path:
    """Writes the model to a new folder, complete at once; returns the folder."""
    check_export(folder)
    spec = make_spec(transformer, config, Tokenizer(tokenizer_model).pieces())
    spec.validate()
    spec.optimize(quantization)
    card = {**card, "quantization": quantization}
    with written_aside(folder) as aside:
        aside.mkdir()
        spec.save(str(aside))
        (aside / "tokenizer.model").write_bytes(tokenizer_model)
        _write(aside / "model_card.json", json.dumps(card, indent=1, ensure_ascii=False) + "\n")
        _write(aside / "README.txt", _readme(config, quantization))
    return folder


def search_options(decoding: DecodingConfig) -> dict[str, Any]:
    """What `translate_batch` is to be told to search as a configuration says.

    Its own defaults are others: a beam of 2, length_penalty 1, one piece at least.
    """
    return {
        "beam_size": decoding.beam_size,
        "length_penalty": decoding.length_penalty,
        "no_repeat_ngram_size": decoding.no_repeat_ngram or 0,
        "min_decoding_length": decoding.min_length,
        "max_decoding_length": decoding.longest,
        "max_input_length": decoding.max_source_length,
    }


def make_spec(transformer: "Transformer", config: Config, pieces: list[str]) -> Spec:
    """The weights, copied, by the names that CTranslate2 has for them."""
    spec = _empty_spec(config.model)
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    _set_encoder(spec.encoder, transformer)
    _set_decoder(spec.decoder, transformer)
    longest = max(POSITIONS, config.decoding.longest, config.decoding.max_source_length)
    positions = _positions(longest, config.model.d_model)
    for side in (spec.encoder, spec.decoder):
        side.position_encodings.encodings = positions
    return spec


def _empty_spec(config: ModelConfig) -> Spec:
    from ctranslate2.specs import TransformerSpec
    from ctranslate2.specs.common_spec import Activation

    spec = TransformerSpec.from_config(
        (config.num_encoder_layers, config.num_decoder_layers),
        config.num_heads,
        pre_norm=config.norm_first,
        activation={"relu": Activation.RELU, "gelu": Activation.GELU}[config.activation],
    )
    spec.config.layer_norm_epsilon = config.norm_epsilon  # its own default is 1e-5
    spec.config.add_source_eos = True
    return spec


def _set_encoder(spec: Spec, transformer: "Transformer") -> None:
    spec.embeddings[0].weight = _array(transformer.source_embedding.table)
    _set_last_norm(spec, transformer.encoder)
    for layer, block in zip(spec.layer, transformer.encoder.blocks, strict=True):
        _set_self_attention(layer.self_attention, block)
        _set_feed_forward(layer.ffn, block)


def _set_decoder(spec: Spec, transformer: "Transformer") -> None:
    from tfnmt.model.attention import BLOCKED

    spec.embeddings.weight = _array(transformer.target_embedding.table)
    spec.projection.weight = _array(transformer.output_embedding.table)
    # Our output has no bias; here it keeps out what our search keeps out.
    spec.projection.bias = np.zeros(len(spec.projection.weight), "float32")
    spec.projection.bias[[PAD, BOS]] = BLOCKED
    _set_last_norm(spec, transformer.decoder)
    for layer, block in zip(spec.layer, transformer.decoder.blocks, strict=True):
        _set_self_attention(layer.self_attention, block)
        _set_cross_attention(layer.attention, block)
        _set_feed_forward(layer.ffn, block)


def _set_last_norm(spec: Spec, stack: Layer) -> None:
    if hasattr(spec, "layer_norm"):
        _set_norm(spec.layer_norm, stack.norm)


def _set_self_attention(spec: Spec, block: Layer) -> None:
    attention = block.self_attention
    _set_norm(spec.layer_norm, block.self_attention_residual.norm)
    _set_linear(spec.linear[0], attention.query, attention.key, attention.value)
    _set_linear(spec.linear[1], attention.output_projection)


def _set_cross_attention(spec: Spec, block: Layer) -> None:
    attention = block.cross_attention
    _set_norm(spec.layer_norm, block.cross_attention_residual.norm)
    _set_linear(spec.linear[0], attention.query)
    _set_linear(spec.linear[1], attention.key, attention.value)
    _set_linear(spec.linear[2], attention.output_projection)


def _set_feed_forward(spec: Spec, block: Layer) -> None:
    _set_norm(spec.layer_norm, block.feed_forward_residual.norm)
    _set_linear(spec.linear_0, block.feed_forward.inner)
    _set_linear(spec.linear_1, block.feed_forward.outer)


def _set_linear(spec: Spec, *projections: Layer) -> None:
    """One projection, or several of the same input as one: weight [out, in], ours is [in, out]."""
    spec.weight = np.concatenate([_array(each.kernel).T for each in projections])
    spec.bias = np.concatenate([_array(each.bias) for each in projections])


def _set_norm(spec: Spec, norm: Layer) -> None:
    spec.gamma, spec.beta = _array(norm.gamma), _array(norm.beta)


def _array(variable: Variable) -> np.ndarray:
    """A copy: quantizing writes into what it is given, and that must not be the model's memory."""
    return np.array(variable.numpy(), "float32")


def _positions(count: int, d_model: int) -> np.ndarray:
    """Our sinusoids, [count, D]; CTranslate2's own have other rates, and all sines first."""
    from tfnmt.model.embedding import sinusoids

    return np.array(sinusoids(np.arange(count), d_model))


def _readme(config: Config, quantization: str) -> str:
    options = search_options(config.decoding)
    return README.format(
        source=config.data.source,
        target=config.data.target,
        quantization=quantization,
        options="\n".join(f"        {name}={value!r}," for name, value in options.items()),
    )


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
