"""What a training begins with."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tfnmt.config import Config, build_config, merge
from tfnmt.data.preparation.tokenizer import Tokenizer
from tfnmt.errors import UsageError, UserError
from tfnmt.runs.run import Run
from tfnmt.training.checkpoints import Progress
from tfnmt.training.loop import begin
from tfnmt.training.trainer import Trainer, make_trainer


def changed(run: Path, **sections: Any) -> Config:
    return build_config(merge(Run(run).config().model_dump(), sections))


def made(run: Path, config: Config) -> Trainer:
    vocab_size = Tokenizer(Run(run).tokenizer_model()).vocab_size
    return make_trainer(config, vocab_size, tf.distribute.get_strategy())


def test_it_begins_with_the_weights_of_another_run(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = changed(tiny_run, training={"init_from": str(tiny_run)})
    trainer = made(tiny_run, config)
    assert begin(Run(tmp_path), trainer, config) == Progress()
    expected = made(tiny_run, changed(tiny_run, training={"seed": 99})).transformer
    expected.load_weights(Run(tiny_run).weights())
    for one, other in zip(trainer.transformer.variables, expected.variables, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    assert f"tfnmt: begins with averaged/00000012 of {tiny_run}\n" in capsys.readouterr().err


def test_what_goes_on_does_not_need_the_run_that_it_began_with(
    tiny_run: Path, tmp_path: Path
) -> None:
    config = changed(tiny_run, training={"init_from": str(tmp_path / "gone")})
    trainer = made(tiny_run, config)
    assert begin(Run(tiny_run), trainer, config).step == 12
    with pytest.raises(UserError, match="no run there"):
        begin(Run(tmp_path / "new"), trainer, config)


def test_a_run_of_another_shape_is_refused_naming_the_keys(tiny_run: Path, tmp_path: Path) -> None:
    config = changed(
        tiny_run, training={"init_from": str(tiny_run)},
        model={"d_ff": 64, "num_encoder_layers": 2, "dropout": 0.3},
    )  # fmt: skip
    with pytest.raises(UsageError, match=r"has another model\.num_encoder_layers, model\.d_ff; "):
        begin(Run(tmp_path), made(tiny_run, config), config)


@pytest.mark.parametrize("part", ["embeddings", "encoder", "decoder"])
def test_a_frozen_part_keeps_its_weights_and_the_others_learn(tiny_run: Path, part: str) -> None:
    trainer = made(tiny_run, changed(tiny_run, training={"freeze": [part]}))
    before = {weight.path: weight.numpy() for weight in trainer.transformer.variables}
    ids = tf.constant([[5, 6, 7, 2]])
    trainer.train_step(((ids, tf.constant([[1, 8, 9, 10]])), tf.constant([[8, 9, 10, 2]])))
    moved = {
        weight.path
        for weight in trainer.transformer.variables
        if not np.array_equal(weight.numpy(), before[weight.path])
    }
    frozen = {path for path in before if f"/{part.removesuffix('s')}" in path.replace("_", "/")}
    assert frozen
    assert moved
    assert not moved & frozen
    assert any("decoder" in path for path in moved) == (part != "decoder")
