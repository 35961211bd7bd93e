"""Writing a CTranslate2 model: a C++ engine for CPUs and NVIDIA GPUs, without TensorFlow.

    model.bin, config.json, shared_vocabulary.json    loaded by ctranslate2.Translator
    tokenizer.model                                   the SentencePiece model
    model_card.json                                   the model card
    README.txt                                        how to translate with it

This module imports TensorFlow only to convert a model, so that `check_export` reports problems at
once.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tfnmt.config import Config, DecodingConfig, ModelConfig
from tfnmt.data.preparation.tokenizer import BOS, PAD, Tokenizer
from tfnmt.errors import UserError
from tfnmt.runtime.files import atomic_path, check_empty, format_json

if TYPE_CHECKING:
    from tfnmt.model.transformer import Transformer

Spec = Any
Layer = Any
Variable = Any

MIN_POSITIONS = 1024
"""Least number of position encodings. CTranslate2 reads sources of this length by default."""

README = """\
A translation model ({directions}), exported by tfnmt for CTranslate2.
Weights: {quantization}.

    pip install ctranslate2 sentencepiece

    import ctranslate2
    import sentencepiece

    folder = "."  # the folder of this file
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=f"{{folder}}/tokenizer.model")
    translator = ctranslate2.Translator(folder, device="cpu")  # or "cuda"
    texts = ["..."]
    results = translator.translate_batch(
        {tokens},
        max_batch_size=64,
{options}
    )
    for result in results:
        print(tokenizer.decode(result.hypotheses[0]))

Pass only {passed}.
The model adds </s> to a source. It never generates padding or <s>.

CTranslate2 divides the log probability by length^length_penalty, tfnmt by ((5 + length) / 6)^
length_penalty. CTranslate2 stops at beam_size finished translations. Both find the same
translations with length_penalty=0 or beam_size=1, and otherwise nearly the same ones.
"""


def check_export(folder: Path) -> None:
    """Raise a UserError if CTranslate2 is not installed or the folder is not empty."""
    if find_spec("ctranslate2") is None:
        raise UserError("ctranslate2: not installed; run pip install 'tfnmt[ctranslate2]'")
    check_empty(folder)


def export_ctranslate2(
    transformer: "Transformer",
    config: Config,
    tokenizer_model: bytes,
    card: dict[str, Any],
    folder: Path,
    quantization: str,
) -> Path:
    """Write a CTranslate2 model. The folder appears only when it is complete.

    Args:
        transformer: The trained model.
        config: Its configuration.
        tokenizer_model: The content of its SentencePiece model file.
        card: The model card.
        folder: The folder to write. It must be empty or not exist.
        quantization: One of `tfnmt.exporting.QUANTIZATIONS`.

    Returns:
        The folder.

    Raises:
        UserError: CTranslate2 is not installed, or the folder is not empty.
    """
    check_export(folder)
    spec = make_spec(transformer, config, Tokenizer(tokenizer_model).tokens())
    spec.validate()
    spec.optimize(quantization)
    card = {**card, "quantization": quantization}
    with atomic_path(folder) as temporary:
        temporary.mkdir()
        spec.save(str(temporary))
        (temporary / "tokenizer.model").write_bytes(tokenizer_model)
        (temporary / "model_card.json").write_bytes(format_json(card))
        _write(temporary / "README.txt", _readme(config, card.get("targets", ()), quantization))
    return folder


def search_options(decoding: DecodingConfig) -> dict[str, Any]:
    """Return the arguments of `ctranslate2.Translator.translate_batch` for a configuration.

    The defaults of CTranslate2 differ: a beam of 2, length_penalty 1, at least one token.
    """
    return {
        "beam_size": decoding.beam_size,
        "length_penalty": decoding.length_penalty,
        "no_repeat_ngram_size": decoding.no_repeat_ngram or 0,
        "min_decoding_length": decoding.min_length,
        "max_decoding_length": decoding.max_translation_length,
        "max_input_length": decoding.max_source_length,
    }


def make_spec(transformer: "Transformer", config: Config, tokens: list[str]) -> Spec:
    """Return the CTranslate2 specification of a model: a copy of its weights, and its vocabulary.

    Args:
        transformer: The trained model.
        config: Its configuration.
        tokens: The token strings by id.
    """
    spec = _empty_spec(config.model)
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    _set_encoder(spec.encoder, transformer)
    _set_decoder(spec.decoder, transformer)
    longest = max(
        MIN_POSITIONS, config.decoding.max_translation_length, config.decoding.max_source_length
    )
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
    spec.config.layer_norm_epsilon = config.norm_epsilon  # CTranslate2's default: 1e-5
    spec.config.add_source_eos = True
    return spec


def _set_encoder(spec: Spec, transformer: "Transformer") -> None:
    spec.embeddings[0].weight = _array(transformer.source_embedding.table)
    _set_last_norm(spec, transformer.encoder)
    for layer, block in zip(spec.layer, transformer.encoder.blocks, strict=True):
        _set_self_attention(layer.self_attention, block)
        _set_feed_forward(layer.ffn, block)


def _set_decoder(spec: Spec, transformer: "Transformer") -> None:
    from tfnmt.model.attention import MASKED_SCORE

    spec.embeddings.weight = _array(transformer.target_embedding.table)
    spec.projection.weight = _array(transformer.output_embedding.table)
    # The output projection of tfnmt has no bias. Here it excludes padding and BOS, which the search
    # of tfnmt excludes.
    spec.projection.bias = np.zeros(len(spec.projection.weight), "float32")
    spec.projection.bias[[PAD, BOS]] = MASKED_SCORE
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
    """Join projections of the same input. CTranslate2 stores them as [out, in], Keras [in, out]."""
    spec.weight = np.concatenate([_array(each.kernel).T for each in projections])
    spec.bias = np.concatenate([_array(each.bias) for each in projections])


def _set_norm(spec: Spec, norm: Layer) -> None:
    spec.gamma, spec.beta = _array(norm.gamma), _array(norm.beta)


def _array(variable: Variable) -> np.ndarray:
    """Return a copy: quantization writes into the array, which may be the model's memory."""
    return np.array(variable.numpy(), "float32")


def _positions(count: int, d_model: int) -> np.ndarray:
    """Return the position encodings of tfnmt, [count, D].

    Those of CTranslate2 differ: other frequencies, and all sines before all cosines.
    """
    from tfnmt.model.embedding import sinusoids

    return np.array(sinusoids(np.arange(count), d_model))


def _readme(config: Config, targets: Sequence[str], quantization: str) -> str:
    options = search_options(config.decoding)
    tokens, passed = "tokenizer.encode(texts, out_type=str)", "the tokens of SentencePiece"
    if targets:
        token = f"<2{config.data.target}>"
        tokens = f'[["{token}", *tokens] for tokens in {tokens}]'
        languages = ", ".join(targets)
        passed = f"the token of the target language ({languages}), as in {token}, and {passed}"
    return README.format(
        directions=", ".join(config.data.all_directions),
        tokens=tokens,
        passed=passed,
        quantization=quantization,
        options="\n".join(f"        {name}={value!r}," for name, value in options.items()),
    )


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
