from tfnmt.config import ModelConfig
from tfnmt.data.batching.batches import Batch
from tfnmt.model.transformer import Transformer
from tfnmt.tracing.forward import Forward


def test_every_weight_of_the_model_is_used_by_some_step(
    forward: Forward, transformer: Transformer
) -> None:
    used = {(each.name, each.shape) for step in forward.steps for each in step.parameters}
    assert used == {
        (weight.path.removeprefix("transformer/"), tuple(weight.shape))
        for weight in transformer.weights
    }


def test_letters_are_the_sizes_that_they_stand_for(
    forward: Forward, batch: Batch, small_config: ModelConfig
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
    assert sizes["S"] != sizes["T"]  # else one could stand for the other
    for step in forward.steps:
        for variable in step.variables:
            letters = variable.letters.split()
            assert len(letters) == variable.values.ndim
            for letter, size in zip(letters, variable.values.shape, strict=True):
                assert sizes.get(letter, size) == size, (step.place, step.function, variable.name)


def test_steps_say_where_they_are(forward: Forward) -> None:
    places = [step.place for step in forward.steps if step.function == "FeedForward.call"]
    assert places == [
        f"{side}/layer_{number}/feed_forward"
        for side in ("encoder", "decoder")
        for number in (0, 1)
    ]
    assert {step.side for step in forward.steps} == {"encode", "decode", "logits"}
