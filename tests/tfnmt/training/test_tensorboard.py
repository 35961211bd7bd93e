"""The summaries that training writes for TensorBoard."""

from pathlib import Path

import pytest
import tensorflow as tf
from tensorflow.core.framework.summary_pb2 import Summary
from tensorflow.core.util import event_pb2

from tfnmt.config import Config
from tfnmt.runs.run import Run
from tfnmt.training.tensorboard import PROFILED_STEPS, Profiler, write_result, write_validation

FIGURE = tf.io.encode_png(tf.fill([4, 6, 3], tf.constant(200, tf.uint8))).numpy()


def summaries(folder: Path) -> dict[str, Summary.Value]:
    """Return the summaries in a folder of logs, by tag."""
    records = tf.data.TFRecordDataset([str(file) for file in folder.iterdir()])
    events = [event_pb2.Event.FromString(record) for record in records.as_numpy_iterator()]
    return {value.tag: value for event in events for value in event.summary.value}


def test_validation_writes_bleu_translations_and_figure(tmp_path: Path) -> None:
    writer = tf.summary.create_file_writer(str(tmp_path))
    write_validation(
        writer, 7, {"val/bleu": 12.5, "val/bleu_en-de": 9.5}, [("a | b", "c", "d")], FIGURE
    )
    writer.close()
    found = summaries(tmp_path)
    assert tf.make_ndarray(found["val/bleu"].tensor) == 12.5
    table = tf.make_ndarray(found["val/translations"].tensor).item().decode()
    assert table.splitlines()[-1] == r"a \| b | c | d"
    width, height, png = tf.make_ndarray(found["val/attention"].tensor)
    assert (width, height) == (b"6", b"4")
    assert (tf.io.decode_png(png).numpy() == 200).all()


def test_result_writes_final_bleu_with_all_configuration_keys(tmp_path: Path) -> None:
    run = Run(tmp_path)
    write_result(run, Config(), 9, 31.0)
    found = summaries(run.logs)
    assert tf.make_ndarray(found["val/final_bleu"].tensor) == pytest.approx(31.0)
    content = found["_hparams_/session_start_info"].metadata.plugin_data.content
    for key in (b"model.d_model", b"training.r_drop", b"decoding.length_penalty"):
        assert key in content


def profiled_steps(run: Run, count: int) -> list[str]:
    """Make `count` steps and return the names of those that the profile contains."""
    profiler = Profiler(run)
    for batch in range(count):
        profiler.on_train_batch_begin(batch)
        with tf.profiler.experimental.Trace(f"step{batch}."):
            tf.reduce_sum(tf.ones([8, 8]))
        profiler.on_train_batch_end(batch)
    profiler.on_train_end()
    profiles = b"".join(path.read_bytes() for path in run.logs.rglob("*.xplane.pb"))
    return [f"step{batch}." for batch in range(count) if f"step{batch}.".encode() in profiles]


@pytest.mark.parametrize("count", [PROFILED_STEPS.stop + 5, PROFILED_STEPS.stop - 2])
def test_profile_contains_the_profiled_steps_only(tmp_path: Path, count: int) -> None:
    expected = [f"step{batch}." for batch in PROFILED_STEPS if batch < count]
    assert profiled_steps(Run(tmp_path), count) == expected


def test_training_that_ends_before_the_profiled_steps_writes_no_profile(tmp_path: Path) -> None:
    assert profiled_steps(Run(tmp_path), PROFILED_STEPS.start) == []
    assert not [*tmp_path.rglob("*.xplane.pb")]
