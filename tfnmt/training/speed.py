"""The speed of training on this machine, measured in a few seconds.

The unit is weights times padded tokens per second, because the work of a step is nearly
proportional to both. Nothing here imports TensorFlow at the top, because training imports it only
after all checks.
"""

import time
from collections.abc import Iterator

from tfnmt.config import Config
from tfnmt.errors import UserError
from tfnmt.runtime.processes import values_of_process
from tfnmt.runtime.startup import configure_threads, import_tensorflow
from tfnmt.training.batch_size import MAX_PADDED_TOKENS, limit_memory, unpadded_batches

MEASURED_TOKENS = 2_048
"""Most padded tokens of the batches that are measured."""

MEASURED_LENGTH = 32
"""Tokens of their sentences."""

FIRST_STEPS = 3
"""Steps that do not count, because they build graphs and kernels."""

MEASURED_SECONDS = 3.0
MIN_MEASURED_STEPS = 3


def weight_count(config: Config) -> int:
    """Return the weights of the matrix products of a model, nearly all of its weights."""
    model = config.model
    width, feed_forward = model.d_model, 2 * model.d_model * model.d_ff
    encoder = model.num_encoder_layers * (4 * width**2 + feed_forward)
    decoder = model.num_decoder_layers * (8 * width**2 + feed_forward)
    return encoder + decoder + config.tokenizer.vocab_size * width


def batch_tokens(config: Config) -> int:
    """Return the padded tokens of a batch; for `auto`, the most that it may become."""
    tokens = config.data.batch_tokens
    return MAX_PADDED_TOKENS if tokens == "auto" else tokens


def step_work(config: Config) -> int:
    """Return the work of a step: weights times padded tokens."""
    return weight_count(config) * batch_tokens(config) * config.training.forward_passes


def measured_speed(config: Config) -> float:
    """Measure the speed in a separate process, so that this process does not occupy the GPU.

    Args:
        config: The model and the training settings.

    Raises:
        UserError: The other process ended early, for example because memory ran out.
    """
    speeds, code = values_of_process(_speeds, config)
    if not speeds:
        raise UserError(
            f"measuring the speed of training ended with exit code {code}; omit --minutes, or "
            "provide more memory"
        )
    speed: float = speeds[0]
    return speed


def _speeds(config: Config) -> Iterator[float]:
    """Yield the speed. It runs in a separate process."""
    limit_memory()
    configure_threads()
    import_tensorflow()
    yield training_speed(config)


def training_speed(config: Config) -> float:
    """Measure the speed in this process, with small batches of random tokens."""
    import tensorflow as tf

    from tfnmt.training.trainer import make_trainer

    measured = _measured(config)
    vocab_size = config.tokenizer.vocab_size
    trainer = make_trainer(measured, vocab_size, tf.distribute.get_strategy())
    trainer.make_train_function()
    rows = batch_tokens(measured) // MEASURED_LENGTH
    batches = unpadded_batches(rows, measured, vocab_size)

    def step() -> None:
        trainer.train_function(batches)["loss"].numpy()  # waits for a GPU

    for _ in range(FIRST_STEPS):
        step()
    count, start = 0, time.perf_counter()
    while count < MIN_MEASURED_STEPS or time.perf_counter() - start < MEASURED_SECONDS:
        step()
        count += 1
    return count * step_work(measured) / (time.perf_counter() - start)


def _measured(config: Config) -> Config:
    """Return the configuration with batches that are quickly measured, and a known precision."""
    size = {
        "batch_tokens": min(MEASURED_TOKENS, batch_tokens(config)),
        "max_length": MEASURED_LENGTH,
    }
    data = config.data.model_copy(update=size)
    precision = config.training.precision
    known = "float32" if precision == "auto" else precision
    training = config.training.model_copy(update={"precision": known})
    return config.model_copy(update={"data": data, "training": training})
