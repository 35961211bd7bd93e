"""Warm-up requests: what TensorFlow Serving runs before it says that a model is ready."""

from pathlib import Path

import tensorflow as tf

from tfnmt.decoding.searcher import MANY
from tfnmt.exporting.parity import Ask

BATCHES = (1, 4, MANY)
"""Rows; the last are searched in halves."""

SIGNATURES = {
    "serving_default": ("text",),
    "greedy": ("text",),
    "nbest": ("text",),
    "align": ("text", "translation"),
    "attention": ("text", "translation"),
    "tokenize": ("text",),
    "info": ("text",),
}
"""Those that take text, with their inputs."""


def write_warmup(path: Path, short: str, long: str) -> None:
    """Writes requests for every signature that takes text, in several batches of both texts.

    The format is that of the server: a TFRecord of PredictionLog.
    """
    from tensorflow_serving.apis import prediction_log_pb2

    with tf.io.TFRecordWriter(str(path)) as writer:
        for signature, inputs in SIGNATURES.items():
            for size in BATCHES:
                texts = [long if row % 4 == 0 else short for row in range(size)]
                log = prediction_log_pb2.PredictionLog()
                request = log.predict_log.request
                request.model_spec.name = "tfnmt"  # which the server passes over
                request.model_spec.signature_name = signature
                for name in inputs:
                    request.inputs[name].CopyFrom(tf.make_tensor_proto(texts))
                writer.write(log.SerializeToString())


def check_warmup(folder: Path, ask: Ask) -> int:
    """Has `replay.py` replay the requests of a SavedModel; returns their number.

    A request that fails would keep the server from loading the model.
    """
    return int(ask(f"{folder}: nothing was published, for its warm-up requests fail", folder))
