"""Runs `tfnmt.train` and notes every step's loss, exact to the bit; tests start and kill this.

    run_training.py LOSSES DEVICES FLAG ...

LOSSES gets a line a step: its number and its loss. DEVICES is the number of logical CPU devices.
With KILL_AT=STEP and KILL_WITH=SIGNAL in the environment, the process sends itself that signal
after that step.
"""

import os
import signal
import sys
from typing import Any

from tfnmt.runtime.startup import set_environment, silent_stderr

set_environment()
with silent_stderr():
    import keras
    import tensorflow as tf

from tfnmt import cli, train  # noqa: E402
from tfnmt.training.trainer import Trainer  # noqa: E402


class LossNotes(keras.callbacks.Callback):
    """Writes each step's loss at once, so that a kill loses none."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.file = open(path, "a", buffering=1)  # noqa: SIM115

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        step = int(keras.ops.convert_to_numpy(self.model.optimizer.iterations))
        self.file.write(f"{step} {float(logs['loss']).hex()}\n")
        if step == int(os.environ.get("KILL_AT", -1)):
            os.kill(os.getpid(), signal.Signals[os.environ["KILL_WITH"]])


def main(losses: str, devices: int, arguments: list[str]) -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    parts = [tf.config.LogicalDeviceConfiguration()] * devices
    tf.config.set_logical_device_configuration(cpu, parts)
    with silent_stderr():
        tf.constant(0)
    fit = Trainer.fit

    def noting(self: Any, *positional: Any, callbacks: list[Any], **named: Any) -> Any:
        assert self.distribute_strategy.num_replicas_in_sync == devices
        return fit(self, *positional, callbacks=[*callbacks, LossNotes(losses)], **named)

    Trainer.fit = noting
    cli.run(train.main, train.FLAGS, "", arguments)


if __name__ == "__main__":  # not in the processes that encode
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
