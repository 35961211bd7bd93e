from tfnmt.config import ModelConfig
from tfnmt.data.batching.batches import Batch
from tfnmt.model.transformer import Transformer
from tfnmt.tracing.forward import ForwardTrace


def test_steps_use_every_weight_of_the_model(
    forward: ForwardTrace, transformer: Transformer
) -> None:
    used = {(each.name, each.shape) for step in forward.steps for each in step.parameters}
    assert used == {
        (weight.path.removeprefix("transformer/"), tuple(weight.shape))
        for weight in transformer.weights
    }


def test_axis_letters_match_the_shapes(
    forward: ForwardTrace, batch: Batch, small_config: ModelConfig
) -> None:
    sizes = {
        "1": 1,
        "B": 2,
        "S": batch.source.shape[1],
        "T": batch.target_in.shape[1],
        "D": small_config.d_model,
        "H": small_config.num_heads,
        "D/H": small_config.d_model // small_config.num_heads,
        "F": small_config.d_ff,
        "V": 20,
    }
    assert sizes["S"] != sizes["T"]  # otherwise the test could not tell them apart
    for step in forward.steps:
        for variable in step.variables:
            letters = variable.letters.split()
            assert len(letters) == variable.values.ndim
            for letter, size in zip(letters, variable.values.shape, strict=True):
                assert sizes.get(letter, size) == size, (step.path, step.function, variable.name)


def test_steps_have_layer_paths_and_stages(forward: ForwardTrace) -> None:
    paths = [step.path for step in forward.steps if step.function == "FeedForward.call"]
    assert paths == [
        f"{side}/layer_{number}/feed_forward"
        for side in ("encoder", "decoder")
        for number in (0, 1)
    ]
    assert {step.stage for step in forward.steps} == {"encode", "decode", "logits"}
