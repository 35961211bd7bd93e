"""Warm-up requests, which TensorFlow Serving runs before it reports that a model is available."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import tensorflow as tf

from tfnmt.decoding.searcher import SPLIT_ROWS
from tfnmt.decoding.signatures import SIGNATURES, TARGET, signature_specs
from tfnmt.exporting.parity import RunScript, language_rows

BATCHES = (1, 4, SPLIT_ROWS)
"""Batch sizes in rows. The search splits batches of SPLIT_ROWS in two."""
WARMED_UP = tuple(name for name, spec in SIGNATURES.items() if spec.takes_text)
"""The signatures with warm-up requests."""


def write_warmup(path: Path, short: str, long: str, targets: Sequence[str] = ()) -> None:
    """Write requests for every signature that takes text.

    The format is that of TensorFlow Serving: a TFRecord file of PredictionLog.

    Args:
        path: The file to write.
        short: A short text. Most rows of a batch have it.
        long: A long text. Every fourth row has it, beginning with the first one.
        targets: The languages with a language token. The rows take them in turn.
    """
    from tensorflow_serving.apis import prediction_log_pb2

    specs = signature_specs(targets)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for signature, size in product(WARMED_UP, BATCHES):
            texts = [long if row % 4 == 0 else short for row in range(size)]
            log = prediction_log_pb2.PredictionLog()
            request = log.predict_log.request
            request.model_spec.name = "tfnmt"  # any name: the server ignores it
            request.model_spec.signature_name = signature
            for name in specs[signature].inputs:
                rows = language_rows(targets, size) if name == TARGET else texts
                request.inputs[name].CopyFrom(tf.make_tensor_proto(rows))
            writer.write(log.SerializeToString())


def check_warmup(folder: Path, run_script: RunScript) -> int:
    """Replay the warm-up requests of a SavedModel.

    TensorFlow Serving does not load a model if one of its warm-up requests fails.

    Args:
        folder: The SavedModel.
        run_script: A clean process of `replay_warmup.py`.

    Returns:
        The number of requests.

    Raises:
        UserError: A request fails.
    """
    return int(run_script(f"{folder}: a warm-up request fails; nothing was published", folder))
