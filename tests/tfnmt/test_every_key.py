"""Every key of the configuration does something: changing it changes what a probe sees."""

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.util import event_pb2

from tfnmt.cli import given_tokenizer
from tfnmt.config import Config, build_config, flatten, merge, parse_overrides
from tfnmt.data.batching.batches import Batches, gather
from tfnmt.data.batching.plan import Pairs, make_plan
from tfnmt.data.corpora.catalog import open_corpus
from tfnmt.data.preparation.prepared import Prepared, prepare
from tfnmt.data.preparation.tokenizer import train_tokenizer
from tfnmt.decoding.translator import Translator
from tfnmt.model.transformer import Transformer
from tfnmt.runs.run import Run
from tfnmt.training import callbacks, tensorboard
from tfnmt.training.checkpoints import Progress
from tfnmt.training.loop import Training, _finish, is_over, last_step
from tfnmt.training.trainer import Trainer, make_trainer
from tfnmt.training.validation import Judged, Validation, Validator

PICTURE = tf.io.encode_png(tf.zeros([2, 2, 3], tf.uint8)).numpy()

DIRTY = {
    "nothing": ("a", " "),
    "half a character of someone's": ("b \ufffd", "e"),
    "much longer than the other": ("a", "e f g h e f g h e f g h"),
    "the same on both sides": ("d e f", "d e f"),
    "another script": ("b", "Ω Ω"),
    "validation text": ("a b", "e f"),
}
"""Pairs of which each breaks a rule."""

DIRTY_SOURCE, DIRTY_TARGET = (
    "".join(f"{pair[side]}\n" for pair in DIRTY.values()) for side in (0, 1)
)

OWN = {
    "train.en": "a b c d\nb c d e\nＡ Ａ\n" * 8 + DIRTY_SOURCE,
    "train.de": "e f g h\nf g\nh\n" * 8 + DIRTY_TARGET,
    "other.en": "rest sets\n" * 20,
    "other.de": "test trees\n" * 20,
    "three.tsv": "en\tde\tfr\n" + "a b\te f\tc d\n" * 20,
    "val.en": "a b\n",
    "val.de": "e f\n",
}
BASE = {
    "data": {"corpus": None, "train": ("train.en", "train.de"), "val": ("val.en", "val.de"),
             "max_length": 16, "batch_tokens": 64},
    "tokenizer": {"vocab_size": 272},
    "model": {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 8, "num_heads": 2,
              "d_ff": 8, "dropout": 0.1, "attention_dropout": 0.1, "ffn_dropout": 0.1},
    "training": {"max_steps": 1000, "max_epochs": 100, "warmup_steps": 1},
    "decoding": {"max_source_length": 6, "max_extra_length": 4},
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in OWN.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def prepared(config: Config) -> Prepared:
    corpus = open_corpus(config.data, config.training.seed, Path("data"))
    return prepare(config, corpus, Path("cache"), given_tokenizer(config))


def transformer(config: Config) -> Transformer:
    keras.utils.set_random_seed(1)
    model = Transformer(config.model, 272)
    for weight in model.weights:  # biases and norms, too, must not be 0 or 1
        weight.assign_add(0.1 * np.random.default_rng(0).standard_normal(weight.shape))
    return model


# --- Probes: what a configuration leads to, as something comparable ---


def text(config: Config) -> Any:
    corpus = open_corpus(config.data, config.training.seed, Path("data"))
    return [next(iter(corpus.pairs(split))) for split in ("train", "val")]


def ids(config: Config) -> Any:
    found = prepared(config)
    return found.tokenizer.model, len(found.source)


def begun(config: Config) -> Any:
    other = Run(Path("other_run"))
    lines = (OWN["other.en"] + OWN["other.de"]).splitlines()
    other.create(build_config(BASE), train_tokenizer(lines, config.tokenizer), "prepared")
    return ids(config)


def batches(config: Config) -> Any:
    plan = make_plan(config, prepared(config))
    return len(plan.rows), [plan.batch(step).pairs.rows.tolist() for step in range(6)]


def kept(config: Config) -> Any:
    found = prepared(config)
    return found.source_lines.between(0, len(found.source)), len(found.source)


def drawn(config: Config) -> Any:
    batches = Batches(make_plan(config, prepared(config)))
    return [side.tolist() for step in range(3) for part in batches.shards(step, 1) for side in part]


def logits(config: Config) -> Any:
    model = transformer(config)
    seed = tf.constant([1, 2])
    return np.array(model(np.array([[5, 6, 2]]), np.array([[1, 7, 8]]), seed=seed)).tolist()


def updated_weights(config: Config) -> Any:
    made = Trainer(transformer(config), config.training)
    found = prepared(config)
    batch = gather(Pairs(found.source, found.target, np.arange(4)), 16)
    logs = [made.train_step(((batch.source, batch.target_in), batch.target_out)) for _ in "ab"]
    return float(logs[-1]["loss"]), [weight.numpy().tolist() for weight in made.weights]


def evaluated_weights(config: Config) -> Any:
    made = Trainer(transformer(config), config.training)
    found = prepared(config)
    batch = gather(Pairs(found.source, found.target, np.arange(4)), 16)
    for _ in "ab":
        made.train_step(((batch.source, batch.target_in), batch.target_out))
    judged = transformer(config)
    made.write_weights(judged)
    return [weight.numpy().tolist() for weight in judged.weights]


def trained_parts(config: Config) -> Any:
    made = make_trainer(config, 272, tf.distribute.get_strategy())
    return [weight.path for weight in made.transformer.trainable_variables]


def computed_in(config: Config) -> Any:
    try:
        return make_trainer(config, 272, tf.distribute.get_strategy()).transformer.compute_dtype
    finally:
        keras.config.set_dtype_policy("float32")


def end(config: Config) -> Any:
    plan = make_plan(config, prepared(config))
    progress = Progress(seconds=90, tokens=90, worse=3)
    return last_step(config.training, plan), is_over(config.training, plan, progress)


def snapshots(config: Config) -> Any:
    run = Run(Path("run"))
    progress = Progress()
    keeper = callbacks.Checkpointer(run, config.training, progress)
    keeper.set_model(Trainer(transformer(config), config.training))
    for progress.step in range(1, 9):
        keeper.on_train_batch_end(progress.step)
    return [path.name for path in run.checkpoints().all()]


def validations(config: Config) -> Any:
    progress, validated = Progress(best_bleu=100.0), []

    def evaluate() -> Validation:
        validated.append(progress.step)
        return Validation(0.0, [], PICTURE)

    writer = tf.summary.create_noop_writer()
    Path("run").mkdir(exist_ok=True)
    judged = Judged(transformer(config), evaluate)
    validator = Validator(judged, writer, Run(Path("run")), progress)
    validator.set_model(Trainer(transformer(config), config.training))
    for progress.step in range(1, 9):
        validator.on_train_batch_end(progress.step)
    return validated


def points(config: Config) -> Any:
    progress = Progress()
    writer = tf.summary.create_file_writer("logs")
    curves = tensorboard.Curves(writer, progress, config.training.log_steps)
    curves.set_model(Trainer(transformer(config), config.training))
    logs = {"loss": 1.0, "cross_entropy": 1.0, "accuracy": 1.0, "gradient_norm": 1.0,
            "learning_rate": 1.0, "padding": 0.0}  # fmt: skip
    for progress.step in range(1, 9):
        progress.busy += 1
        curves.on_train_batch_end(progress.step, logs)
    writer.close()
    return [step for step, _ in written()]


def written() -> list[tuple[int, str]]:
    """Step and name of what was written for TensorBoard, which is then removed."""
    files = sorted(Path("logs").iterdir())
    records = tf.data.TFRecordDataset([str(file) for file in files])
    events = [event_pb2.Event.FromString(record) for record in records.as_numpy_iterator()]
    for file in files:
        file.unlink()
    return [(event.step, value.tag) for event in events for value in event.summary.value]


def histograms(config: Config) -> Any:
    if config.training.histogram_steps is None:
        return []
    found = prepared(config)
    progress = Progress()
    writer = tf.summary.create_file_writer("logs")
    batches = Batches(make_plan(config, found))
    drawer = tensorboard.Histograms(writer, progress, batches, config.training.histogram_steps)
    drawer.set_model(Trainer(transformer(config), config.training))
    for progress.step in range(1, 4):
        drawer.on_train_batch_end(progress.step)
    writer.close()
    return written()


def averaged(config: Config) -> Any:
    run = Run(Path("run"))
    progress = Progress()
    made = Trainer(transformer(config), config.training)
    keeper = callbacks.Checkpointer(run, config.training, progress)
    keeper.set_model(made)
    for progress.step in range(1, 9):
        keeper.on_train_batch_end(progress.step)
    found = prepared(config)
    training = Training(
        config, found, make_plan(config, found), run,
        lambda _: lambda: Validation(0.0, [], PICTURE),
    )  # fmt: skip
    _finish(training, made, progress)
    return run.summary_path.read_text()


def translations(config: Config) -> Any:
    translator = Translator(transformer(config), prepared(config).tokenizer.model, config.decoding)
    answer = translator.translate(tf.constant(["a b c d e f g h a b c d", "a"]))
    return [answer[name].numpy().tolist() for name in ("translation", "score", "truncated")]


COPY = {"data.corpus": "copy", "data.train": "null", "data.val": "null",
        "data.source": "digits", "data.target": "copied"}  # fmt: skip
REVERSE = {"data.corpus": "reverse", "data.target": "reversed"}
THREE = {"data.train": "[three.tsv]", "data.val": "[three.tsv]",
         "data.source": "en", "data.target": "de"}  # fmt: skip

CASES: list[tuple[str, Callable[[Config], Any], dict[str, str], dict[str, str]]] = [
    # key, probe, settings before, settings after
    ("data.corpus", text, COPY, COPY | REVERSE),
    ("data.source", text, THREE, THREE | {"data.source": "fr"}),
    ("data.target", text, THREE, THREE | {"data.target": "fr"}),
    *(
        (key, probe, before, before | {key: value})
        for probe, before, changes in (
            (text, {}, {"data.train": "[other.en, other.de]", "data.val": "[train.en, train.de]"}),
            (ids, {}, {"data.max_pairs": "10", "tokenizer.vocab_size": "273",
                       "tokenizer.normalization": "nfkc"}),
            (kept, {}, {"cleaning.empty": "false", "cleaning.broken": "true",
                        "cleaning.max_characters": "10", "cleaning.max_ratio": "5",
                        "cleaning.identical": "true", "cleaning.scripts": "true",
                        "cleaning.duplicates": "true", "cleaning.leakage": "false"}),
            (drawn, {"data.train": "[other.en, other.de]"}, {"data.bpe_dropout": "0.5"}),
            (batches, {}, {"data.max_length": "6", "data.batch_tokens": "32",
                           "training.seed": "2"}),
            (logits, {}, {"model.num_encoder_layers": "2", "model.num_decoder_layers": "2",
                          "model.d_model": "16", "model.num_heads": "4", "model.d_ff": "16",
                          "model.dropout": "0.5", "model.attention_dropout": "0.5",
                          "model.ffn_dropout": "0.5", "model.activation": "gelu",
                          "model.norm_first": "false", "model.norm_epsilon": "0.1",
                          "model.tie_embeddings": "none"}),
            (end, {}, {"training.max_steps": "5", "training.max_epochs": "1",
                       "training.max_minutes": "1", "training.max_tokens": "80",
                       "training.patience": "2"}),
            (computed_in, {}, {"training.precision": "mixed_bfloat16"}),
            (evaluated_weights, {}, {"training.ema_decay": "0.5"}),
            (trained_parts, {}, {"training.freeze": "[encoder]"}),
            (begun, {}, {"training.init_from": "other_run", "tokenizer.from_run": "other_run"}),
            (updated_weights, {"model.dropout": "0.5"}, {"training.device_tokens": "16"}),
            (updated_weights, {}, {"training.warmup_steps": "50",
                                   "training.learning_rate_scale": "2.0",
                                   "training.adam_beta_1": "0.5", "training.adam_beta_2": "0.5",
                                   "training.adam_epsilon": "0.1", "training.clip_norm": "0.001",
                                   "training.label_smoothing": "0.4"}),
            (updated_weights, {"model.dropout": "0.5"}, {"training.r_drop": "5.0"}),
            (histograms, {}, {"training.histogram_steps": "2"}),
            (snapshots, {"training.checkpoint_steps": "1"}, {"training.checkpoint_steps": "2",
                                                             "training.keep_last": "7"}),
            (validations, {"training.validation_steps": "1"}, {"training.validation_steps": "2"}),
            (averaged, {"training.checkpoint_steps": "1"}, {"training.average_last": "2"}),
            (points, {"training.log_steps": "1"}, {"training.log_steps": "2"}),
            (translations, {}, {"decoding.beam_size": "1", "decoding.length_penalty": "2.0",
                                "decoding.max_source_length": "4",
                                "decoding.max_extra_length": "2", "decoding.max_length": "3",
                                "decoding.no_repeat_ngram": "2"}),
            # A beam of every piece: eos, which random weights do not prefer, ends hypotheses too.
            (translations, {"decoding.beam_size": "272"}, {"decoding.min_length": "3"}),
        )
        for key, value in changes.items()
    ),
]  # fmt: skip


def configured(settings: dict[str, str]) -> Config:
    overrides = parse_overrides([f"{key}={value}" for key, value in settings.items()])
    return build_config(merge(BASE, overrides))


def test_every_key_has_its_case() -> None:
    assert sorted(case[0] for case in CASES) == sorted(flatten(Config()))


@pytest.mark.parametrize(("key", "probe", "before", "after"), CASES, ids=[c[0] for c in CASES])
def test_changing_a_key_changes_something(
    key: str,
    probe: Callable[[Config], Any],
    before: dict[str, str],
    after: dict[str, str],
    folder: Path,
) -> None:
    plain, changed = configured(before), configured(after)
    assert flatten(plain)[key] != flatten(changed)[key]
    assert steady(probe, plain) != probe(changed)


@cache
def steady(probe: Callable[[Config], Any], config: Config) -> Any:
    """What a probe sees, the same both times."""
    seen = probe(config)
    shutil.rmtree("run", ignore_errors=True)
    assert seen == probe(config)
    shutil.rmtree("run", ignore_errors=True)
    return seen
