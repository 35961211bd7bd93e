"""Runs `tfnmt.train` on logical CPU devices and writes what came of it; a test starts this.

    run_on_devices.py DEVICES FOLDER OUTPUT.npz
"""

import sys
from pathlib import Path

import numpy as np

from tfnmt.quiet import set_environment

set_environment()

import h5py  # noqa: E402
import keras  # noqa: E402
import tensorflow as tf  # noqa: E402

from tfnmt import train  # noqa: E402
from tfnmt.run import Run  # noqa: E402
from tfnmt.training import trainer  # noqa: E402

SETTINGS = {
    "data.max_pairs": 200, "data.batch_tokens": 90, "data.max_length": 32,
    "tokenizer.vocab_size": 280, "model.num_encoder_layers": 1, "model.num_decoder_layers": 1,
    "model.d_model": 16, "model.d_ff": 32, "training.max_steps": 20, "training.max_epochs": "null",
    "training.warmup_steps": 5, "training.clip_norm": 0.5, "training.validation_steps": 100,
    "training.checkpoint_steps": 20, "training.average_last": 1,
}  # fmt: skip


def main(devices: int, folder: Path, output: Path) -> None:
    """Trains 20 steps on uneven batches, dropout off."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    parts = [tf.config.LogicalDeviceConfiguration()] * devices
    tf.config.set_logical_device_configuration(cpu, parts)

    losses: list[float] = []
    fit = trainer.Trainer.fit

    def noting(self: trainer.Trainer, *arguments: object, **named: object) -> object:
        assert self.distribute_strategy.num_replicas_in_sync == devices
        named["callbacks"].append(  # type: ignore[attr-defined]
            keras.callbacks.LambdaCallback(
                on_train_batch_end=lambda _, logs: losses.append(logs["loss"])
            )
        )
        return fit(self, *arguments, **named)

    trainer.Trainer.fit = noting
    run = folder / f"run-{devices}"
    arguments = ["--config", str(Path(train.__file__).parents[1] / "configs" / "copy.yaml")]
    arguments += [f"--run_dir={run}", f"--cache_dir={folder / 'cache'}"]
    arguments += [f"--set={key}={value}" for key, value in SETTINGS.items()]
    train.FLAGS(["train", *arguments])
    train.main(train.FLAGS, [])

    weights = flat_weights(Run(run).weights())
    np.savez(output, losses=losses, weights=weights)


def flat_weights(path: Path) -> np.ndarray:
    """All weights of a file, end to end, but for the biases of keys.

    Softmax cancels those: their gradient is 0 but for rounding, which Adam blows up to full steps.
    """
    found: list[np.ndarray] = []

    def note(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset) and not name.endswith("/key/vars/1"):
            found.append(np.ravel(item[()]))

    with h5py.File(path) as file:
        file.visititems(note)
    return np.concatenate(found)


main(int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
