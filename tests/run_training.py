"""Run `tfnmt.train` and write the exact loss of every step; tests start and kill this process.

    run_training.py LOSSES DEVICES FLAG ...

Appends a line per step to LOSSES: the step and its loss as a hexadecimal float. DEVICES is the
number of logical CPU devices. With KILL_AT=STEP and KILL_WITH=SIGNAL in the environment, the
process sends itself that signal after that step.
"""

import os
import signal
import sys
from typing import Any

from tfnmt.runtime.startup import set_environment, silence_stderr

set_environment()
with silence_stderr():
    import keras
    import tensorflow as tf

from tfnmt import cli, train  # noqa: E402
from tfnmt.training.trainer import Trainer  # noqa: E402


class LossWriter(keras.callbacks.Callback):
    """Writes the loss of each step immediately, so that a kill loses none."""

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
    logical_devices = [tf.config.LogicalDeviceConfiguration()] * devices
    tf.config.set_logical_device_configuration(cpu, logical_devices)
    with silence_stderr():
        tf.constant(0)
    fit = Trainer.fit

    def fit_and_write(self: Any, *positional: Any, callbacks: list[Any], **named: Any) -> Any:
        assert self.distribute_strategy.num_replicas_in_sync == devices
        return fit(self, *positional, callbacks=[*callbacks, LossWriter(losses)], **named)

    Trainer.fit = fit_and_write
    cli.run_command(train.main, train.FLAGS, "", arguments)


if __name__ == "__main__":  # not in the processes that encode the corpus
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
