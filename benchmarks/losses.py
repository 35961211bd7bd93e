"""Print the losses of the first training steps, to compare devices.

    python -m benchmarks.losses [--size=reference] [--steps=20] [--set training.precision=...]

Model and batches are those of benchmarks.training, without dropout. Prints one JSON line.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

from absl import flags

from benchmarks.training import SHAPES, TfnmtTraining, configure
from tfnmt.cli import define_data_dir, run_command
from tfnmt.errors import UsageError

FLAGS = flags.FlagValues()
define_data_dir(FLAGS)
flags.DEFINE_enum("size", "reference", list(SHAPES), "shape of the model", flag_values=FLAGS)
flags.DEFINE_multi_string(
    "set", [], "configuration key and value, as in tfnmt.train", flag_values=FLAGS
)
flags.DEFINE_integer("steps", 20, "steps", 2, flag_values=FLAGS)


def main(values: Any, positional: list[str]) -> None:
    """Train some steps and print their losses."""
    if positional:
        raise UsageError(f"{positional[0]}: not expected; see --help")
    with tempfile.TemporaryDirectory() as cache:
        config = configure(values.size, [*values.set, "model.dropout=0"])
        tfnmt = TfnmtTraining(config, SHAPES[values.size][1], values, Path(cache))
        losses = tfnmt.train(values.steps - 1).losses
    print(json.dumps({"task": "losses", "devices": tfnmt.devices, "losses": losses}), flush=True)


if __name__ == "__main__":
    run_command(main, FLAGS, __doc__)
