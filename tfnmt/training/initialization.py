"""Initial weights of a training run from another run, which may have more layers."""

from pathlib import Path

import keras

from tfnmt.config import Config, ModelConfig
from tfnmt.errors import UsageError
from tfnmt.model.transformer import Transformer
from tfnmt.progress import log
from tfnmt.runs.checkpoints import check_weights, report_missing
from tfnmt.runs.run import Run

_DEPTHS = ("num_encoder_layers", "num_decoder_layers")


def initialize_from_run(transformer: Transformer, config: Config) -> None:
    """Load the weights of the run `training.init_from`.

    A stack of layers may be deeper there. Layers at even distances are then used, from the first
    one on ("shrink and fine-tune" of Shleifer and Rush, 2020, https://arxiv.org/abs/2010.13002).

    Args:
        transformer: The Transformer whose weights are set.
        config: The configuration of the new run.

    Raises:
        UsageError: The other run has another shape, or fewer layers.
        UserError: The other run has no intact weights.
    """
    run = Run(Path(str(config.training.init_from)))
    model = run.config().model
    _check_shape(config.model, model, run)
    weights = run.weights()
    check_weights(weights)
    source = Transformer(model, transformer.target_embedding.vocab_size)
    with report_missing(weights):
        source.load_weights(weights)
    for name in "source_embedding", "target_embedding", "output_embedding":
        getattr(transformer, name).set_weights(getattr(source, name).get_weights())
    _copy_stack(transformer.encoder, source.encoder)
    _copy_stack(transformer.decoder, source.decoder)
    log(f"initialized with {weights.relative_to(run.path).parent} of {run.path}")


def _check_shape(ours: ModelConfig, theirs: ModelConfig, run: Run) -> None:
    """Refuse a run whose layers have another shape, or that has too few layers."""
    other = theirs.model_dump()
    differing = [
        f"model.{key}"
        for key, value in ours.model_dump().items()
        if (value > other[key] if key in _DEPTHS else value != other[key])
        and "dropout" not in key
        and key != "attention"
    ]
    if differing:
        raise UsageError(
            f"training.init_from={run.path}: that run has another {', '.join(differing)}; use its "
            "values, or fewer layers"
        )


def _copy_stack(target: keras.layers.Layer, source: keras.layers.Layer) -> None:
    """Copy the weights of as many layers as the target has, and of the final normalization."""
    for number, block in enumerate(target.blocks):
        kept = number * len(source.blocks) // len(target.blocks)
        block.set_weights(source.blocks[kept].get_weights())
    target.norm.set_weights(source.norm.get_weights())
