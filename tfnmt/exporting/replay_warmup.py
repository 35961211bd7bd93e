"""Replay the warm-up requests of a SavedModel as TensorFlow Serving does, in a clean process.

    echo '["FOLDER"]' | python -P replay_warmup.py

Prints the number of requests.
"""

import json
import sys
from pathlib import Path

import tensorflow as tf
import tensorflow_text  # noqa: F401
from tensorflow_serving.apis import prediction_log_pb2

WARMUP = Path("assets.extra") / "tf_serving_warmup_requests"


def main(folder: str) -> None:
    """Run every request. A request that fails raises its error."""
    records = list(tf.data.TFRecordDataset(str(Path(folder) / WARMUP)).as_numpy_iterator())
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        meta = tf.compat.v1.saved_model.load(session, ["serve"], folder)
        for record in records:
            request = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
            signature = meta.signature_def[request.model_spec.signature_name]
            feeds = {
                signature.inputs[name].name: tf.make_ndarray(value)
                for name, value in request.inputs.items()
            }
            session.run({name: info.name for name, info in signature.outputs.items()}, feeds)
    print(len(records))


if __name__ == "__main__":
    main(*json.load(sys.stdin))
