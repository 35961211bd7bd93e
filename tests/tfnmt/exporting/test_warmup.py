"""Warm-up requests: a server does not load a model that fails one of them."""

import shutil
from pathlib import Path

import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from tfnmt.errors import UserError
from tfnmt.exporting import replay_warmup
from tfnmt.exporting.parity import fresh_process
from tfnmt.exporting.warmup import BATCHES, SIGNATURES, check_warmup, write_warmup


def requests(path: Path) -> list[tuple[str, int]]:
    """The signature and the rows of each."""
    records = tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    logs = [prediction_log_pb2.PredictionLog.FromString(record) for record in records]
    found = [log.predict_log.request for log in logs]
    return [
        (each.model_spec.signature_name, each.inputs["text"].tensor_shape.dim[0].size)
        for each in found
    ]


def test_every_signature_is_asked_in_every_size(tmp_path: Path) -> None:
    write_warmup(tmp_path / "requests", "short", "a longer one")
    assert requests(tmp_path / "requests") == [
        (signature, size) for signature in SIGNATURES for size in BATCHES
    ]


def test_a_request_that_fails_keeps_a_model_from_being_published(
    tiny_export: Path, tmp_path: Path
) -> None:
    shutil.copytree(tiny_export / "1", tmp_path / "1")
    path = tmp_path / "1" / replay_warmup.WARMUP
    with fresh_process(replay_warmup.__file__) as ask:
        assert check_warmup(tmp_path / "1", ask) == len(SIGNATURES) * len(BATCHES)

    log = prediction_log_pb2.PredictionLog()
    log.predict_log.request.model_spec.signature_name = "serving_default"
    log.predict_log.request.inputs["text"].CopyFrom(tf.make_tensor_proto([1, 2]))
    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write(log.SerializeToString())
    with (
        fresh_process(replay_warmup.__file__) as ask,
        pytest.raises(UserError, match="nothing was published, for its warm-up requests fail: "),
    ):
        check_warmup(tmp_path / "1", ask)
