"""Translate a file with OpenNMT-tf and the weights of a tfnmt run.

    PYTHON_OF_OPENNMT_TF benchmarks/baselines/opennmt_tf.py RUN INPUT > OUTPUT

Does not import tfnmt, because OpenNMT-tf needs an older TensorFlow. The run must be pre-norm, with
one table for all embeddings. Translates batches of 64 lines of similar length, with a beam of 4 and
a length penalty of 0.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import h5py
import numpy as np
import opennmt
import sentencepiece
import tensorflow as tf
import yaml

BATCH_SIZE = 64
SPECIAL = 4  # tfnmt's ordinary tokens follow padding, BOS, EOS and UNK
ATTENTION = ("query", "key", "value", "output_projection")

Weights = Iterator[np.ndarray]


class Positions(opennmt.layers.position.PositionEncoder):
    """tfnmt's positional encoding: counts from 0 and interleaves sine and cosine.

    OpenNMT-tf passes positions that count from 1.
    """

    def _encode(self, positions: Any, depth: int) -> Any:
        frequencies = 10000.0 ** (-np.arange(0, depth, 2, dtype=np.float32) / depth)
        angles = tf.cast(positions, tf.float32)[..., None] - 1.0
        angles *= frequencies
        pairs = tf.stack([tf.sin(angles), tf.cos(angles)], axis=-1)
        return tf.reshape(pairs, tf.concat([tf.shape(angles)[:-1], [depth]], axis=0))


def main(run: Path, lines: list[str]) -> None:
    """Print a translation per line."""
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(run / "tokenizer.model"))
    config = yaml.safe_load((run / "config.yaml").read_text())
    model = _make_model(config["model"], tokenizer)
    averaged = next((run / "averaged").glob("*/model.weights.h5"), None)
    if averaged is None:
        sys.exit(f"{run}: no averaged checkpoint; give a finished run")
    _assign(model, averaged)

    @tf.function(
        input_signature=[tf.TensorSpec([None, None], tf.string), tf.TensorSpec([None], tf.int32)]
    )
    def translate(tokens: Any, length: Any) -> Any:
        features = {"tokens": tokens, "length": length}
        features = model.features_inputter.make_features(features=features, training=False)
        _, predictions = model(features)
        return predictions["tokens"][:, 0], predictions["length"][:, 0]

    sources = [[*row, "</s>"] for row in tokenizer.encode(lines, out_type=str)]
    order = sorted(range(len(lines)), key=lambda number: len(sources[number]))
    found: dict[int, str] = {}
    for start in range(0, len(order), BATCH_SIZE):
        numbers = order[start : start + BATCH_SIZE]
        rows = [sources[number] for number in numbers]
        longest = max(map(len, rows))
        padded = [row + [""] * (longest - len(row)) for row in rows]
        tokens, lengths = translate(tf.constant(padded), tf.constant([*map(len, rows)]))
        for number, row, length in zip(numbers, tokens.numpy(), lengths.numpy(), strict=True):
            found[number] = tokenizer.decode([token.decode() for token in row[:length]])
    print(*(found[number] for number in range(len(lines))), sep="\n")


def _make_model(shape: dict[str, Any], tokenizer: Any) -> Any:
    """Make an OpenNMT-tf model with the shape and the vocabulary of a run."""
    with tempfile.TemporaryDirectory() as folder:
        vocabulary = Path(folder) / "vocabulary"
        ids = range(SPECIAL, tokenizer.get_piece_size())
        names = [tokenizer.id_to_piece(number) for number in ids]
        vocabulary.write_text("\n".join(["<blank>", "<s>", "</s>", *names]) + "\n")
        sides = [opennmt.inputters.WordEmbedder(embedding_size=shape["d_model"]) for _ in range(2)]
        model = opennmt.models.Transformer(
            *sides,
            num_layers=(shape["num_encoder_layers"], shape["num_decoder_layers"]),
            num_units=shape["d_model"],
            num_heads=shape["num_heads"],
            ffn_inner_dim=shape["d_ff"],
            position_encoder_class=Positions,
            share_embeddings=opennmt.models.EmbeddingsSharingLevel.ALL,
        )
        files = {"source_vocabulary": str(vocabulary), "target_vocabulary": str(vocabulary)}
        model.initialize(files, params={"beam_width": 4, "length_penalty": 0})
        model.create_variables()
    return model


def _assign(model: Any, path: Path) -> None:
    """Assign the weights of a run to an OpenNMT-tf model."""
    with h5py.File(path) as file:
        weights = [*_weights(file)]
    variables = model.variables
    if [weight.shape for weight in weights] != [tuple(variable.shape) for variable in variables]:
        sys.exit(
            f"{path}: OpenNMT-tf has no model of this shape; "
            "use a pre-norm run with model.tie_embeddings=all"
        )
    for variable, weight in zip(variables, weights, strict=True):
        variable.assign(weight)


def _weights(file: Any) -> Weights:
    """Yield the weights in the order of OpenNMT-tf's variables.

    First the embedding table, then for each stack the final norm and the layers, then an output
    bias of 0.
    """
    table = file["layers/embedding/vars/0"][:]
    yield np.concatenate([table[:3], table[SPECIAL:], table[3:SPECIAL]])  # OpenNMT-tf has UNK last
    for stack in ("encoder", "decoder"):
        yield from _pair(file[f"{stack}/norm"])
        blocks = file[f"{stack}/blocks"]
        for number in range(len(blocks)):
            yield from _block(blocks[f"{stack}_layer" + (f"_{number}" if number else "")])
    yield np.zeros(len(table), np.float32)


def _block(block: Any) -> Weights:
    for name in ("self_attention", "cross_attention"):
        if name in block:
            for projection in ATTENTION:
                yield from _pair(block[f"{name}/{projection}"])
            yield from _pair(block[f"{name}_residual/norm"])
    yield from _pair(block["feed_forward/inner"])
    yield from _pair(block["feed_forward/outer"])
    yield from _pair(block["feed_forward_residual/norm"])


def _pair(layer: Any) -> Weights:
    """Yield kernel and bias, or gamma and beta."""
    yield layer["vars/0"][:]
    yield layer["vars/1"][:]


if __name__ == "__main__":
    # With newline="\n", Python splits lines at line feeds only.
    with open(sys.argv[2], encoding="utf-8", newline="\n") as file:
        main(Path(sys.argv[1]), [line.rstrip("\n") for line in file])
