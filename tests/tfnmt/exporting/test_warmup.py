"""Warm-up requests. TensorFlow Serving does not load a model if one of them fails."""

import shutil
from pathlib import Path

import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from tfnmt.errors import UserError
from tfnmt.exporting import replay_warmup
from tfnmt.exporting.parity import clean_process
from tfnmt.exporting.warmup import BATCHES, WARMED_UP, check_warmup, write_warmup


def requests(path: Path) -> list[tuple[str, int]]:
    """Return the signature and the number of rows of each request."""
    records = tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    logs = [prediction_log_pb2.PredictionLog.FromString(record) for record in records]
    found = [log.predict_log.request for log in logs]
    return [
        (each.model_spec.signature_name, each.inputs["text"].tensor_shape.dim[0].size)
        for each in found
    ]


def test_warmup_has_requests_for_every_signature_and_batch_size(tmp_path: Path) -> None:
    write_warmup(tmp_path / "requests", "short", "a longer one")
    assert requests(tmp_path / "requests") == [
        (signature, size) for signature in WARMED_UP for size in BATCHES
    ]


def write_request(folder: Path, texts: list[object]) -> None:
    """Replace the warm-up requests of a SavedModel by a single one."""
    log = prediction_log_pb2.PredictionLog()
    log.predict_log.request.model_spec.signature_name = "serving_default"
    log.predict_log.request.inputs["text"].CopyFrom(tf.make_tensor_proto(texts))
    with tf.io.TFRecordWriter(str(folder / replay_warmup.WARMUP)) as writer:
        writer.write(log.SerializeToString())


def test_replay_counts_the_requests_and_raises_if_one_fails(
    tiny_export: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "1"
    shutil.copytree(tiny_export / "1", folder)
    write_request(folder, ["a"])
    replay_warmup.main(str(folder))
    assert capsys.readouterr().out == "1\n"
    write_request(folder, [1, 2])
    with pytest.raises(tf.errors.OpError, match="Unsupported object type int"):
        replay_warmup.main(str(folder))


@pytest.mark.slow
def test_check_warmup_refuses_an_export_if_a_request_fails(
    tiny_export: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "1"
    shutil.copytree(tiny_export / "1", folder)
    with clean_process(replay_warmup.__file__) as run_script:
        assert check_warmup(folder, run_script) == len(WARMED_UP) * len(BATCHES)
    write_request(folder, [1, 2])
    with (
        clean_process(replay_warmup.__file__) as run_script,
        pytest.raises(UserError, match="warm-up request fails; nothing was published: "),
    ):
        check_warmup(folder, run_script)
