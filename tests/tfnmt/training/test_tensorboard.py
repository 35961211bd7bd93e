"""What TensorBoard is given."""

from pathlib import Path

import pytest
import tensorflow as tf
from tensorflow.core.framework.summary_pb2 import Summary
from tensorflow.core.util import event_pb2

from tfnmt.config import Config
from tfnmt.runs.run import Run
from tfnmt.training.tensorboard import PROFILED_STEPS, Profiler, write_result, write_validation

PICTURE = tf.io.encode_png(tf.fill([4, 6, 3], tf.constant(200, tf.uint8))).numpy()


def written(folder: Path) -> dict[str, Summary.Value]:
    """What lies in a folder of logs, by its name."""
    records = tf.data.TFRecordDataset([str(file) for file in folder.iterdir()])
    events = [event_pb2.Event.FromString(record) for record in records.as_numpy_iterator()]
    return {value.tag: value for event in events for value in event.summary.value}


def test_a_validation_shows_bleu_translations_and_the_picture(tmp_path: Path) -> None:
    writer = tf.summary.create_file_writer(str(tmp_path))
    write_validation(writer, 7, 12.5, [("a | b", "c", "d")], PICTURE)
    writer.close()
    found = written(tmp_path)
    assert tf.make_ndarray(found["val/bleu"].tensor) == 12.5
    table = tf.make_ndarray(found["val/translations"].tensor).item().decode()
    assert table.splitlines()[-1] == r"a \| b | c | d"
    width, height, png = tf.make_ndarray(found["val/attention"].tensor)
    assert (width, height) == (b"6", b"4")
    assert (tf.io.decode_png(png).numpy() == 200).all()


def test_the_result_stands_beside_every_key_of_the_configuration(tmp_path: Path) -> None:
    run = Run(tmp_path)
    write_result(run, Config(), 9, 31.0)
    found = written(run.logs)
    assert tf.make_ndarray(found["val/final_bleu"].tensor) == pytest.approx(31.0)
    content = found["_hparams_/session_start_info"].metadata.plugin_data.content
    for key in (b"model.d_model", b"training.r_drop", b"decoding.length_penalty"):
        assert key in content


def profiled_updates(run: Run, updates: int) -> list[str]:
    """The names of the updates that a profile of a training of so many has in it."""
    profiler = Profiler(run)
    for batch in range(updates):
        profiler.on_train_batch_begin(batch)
        with tf.profiler.experimental.Trace(f"update{batch}."):
            tf.reduce_sum(tf.ones([8, 8]))
        profiler.on_train_batch_end(batch)
    profiler.on_train_end()
    profiles = b"".join(path.read_bytes() for path in run.logs.rglob("*.xplane.pb"))
    return [f"update{batch}." for batch in range(updates) if f"update{batch}.".encode() in profiles]


@pytest.mark.parametrize("updates", [PROFILED_STEPS.stop + 5, PROFILED_STEPS.stop - 2])
def test_a_profile_has_the_updates_that_it_is_of_and_no_others(
    tmp_path: Path, updates: int
) -> None:
    among = [f"update{batch}." for batch in PROFILED_STEPS if batch < updates]
    assert profiled_updates(Run(tmp_path), updates) == among


def test_a_training_that_ends_before_the_updates_to_be_profiled_has_no_profile(
    tmp_path: Path,
) -> None:
    assert profiled_updates(Run(tmp_path), PROFILED_STEPS.start) == []
    assert not [*tmp_path.rglob("*.xplane.pb")]
